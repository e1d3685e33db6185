//! Plain text tables: columns as wide as their widest cell.

pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Table {
        Table { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn print(&self) {
        for line in self.lines() {
            println!("{line}");
        }
    }

    fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let text = |row: &Vec<String>| {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            cells.join("  ").trim_end().to_owned()
        };
        let mut lines: Vec<String> = self.rows.iter().map(text).collect();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        lines.insert(1, rule.join("  "));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["kernel", "n"]);
        table.row(vec!["a".into(), "1000".into()]);
        assert_eq!(table.lines(), ["kernel  n", "------  ----", "a       1000"]);
    }
}
