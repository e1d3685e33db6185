//! Pictures of a layout: a text grid and an SVG.
//!
//! The first mode runs down, the others together run to the right; an integer layout is one row.

use std::fmt::Write;

use super::{AnyLayout, LayoutError, evaluate};

/// The most cells of a picture.
pub const MAX_CELLS: usize = 4096;

/// The indices as an aligned grid with a header line, each line ended.
pub fn text_grid(layout: &AnyLayout) -> Result<String, LayoutError> {
    let grid = Grid::new(layout)?;
    let largest = grid.cells.iter().max().copied().unwrap_or(0);
    let width = [largest, to_index(grid.rows), to_index(grid.columns)]
        .map(|number| number.to_string().len())
        .into_iter()
        .max()
        .unwrap_or(1);
    let mut text = format!("{layout}\n{:width$} |", "");
    for column in 0..grid.columns {
        write!(text, " {column:width$}").expect("a string takes any text");
    }
    text.push('\n');
    for row in 0..grid.rows {
        write!(text, "{row:width$} |").expect("a string takes any text");
        for column in 0..grid.columns {
            write!(text, " {:width$}", grid.cell(row, column)).expect("a string takes any text");
        }
        text.push('\n');
    }
    Ok(text)
}

/// The value of an expression as an SVG picture.
pub fn picture(text: &str) -> Result<String, LayoutError> {
    svg(&evaluate(text)?)
}

/// The indices as an SVG picture; cells whose indices agree modulo 8 share a colour.
pub fn svg(layout: &AnyLayout) -> Result<String, LayoutError> {
    const CELL: usize = 36;
    const COLOURS: [&str; 8] =
        ["#ffffff", "#d6e4f0", "#f9e2cf", "#dcefdc", "#f4d9e0", "#e4dcf1", "#f7f0c6", "#dde3e3"];
    let grid = Grid::new(layout)?;
    let (width, height) = ((grid.columns + 1) * CELL, (grid.rows + 2) * CELL);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"12\" \
         text-anchor=\"middle\">\n<title>{layout}</title>\n\
         <text x=\"8\" y=\"22\" text-anchor=\"start\">{layout}</text>\n"
    );
    let label = |x: usize, y: usize, number: i64| {
        let (x, y) = (x * CELL + CELL / 2, (y + 1) * CELL + CELL / 2 + 4);
        format!("<text x=\"{x}\" y=\"{y}\">{number}</text>\n")
    };
    for column in 0..grid.columns {
        text.push_str(&label(column + 1, 0, to_index(column)));
    }
    for row in 0..grid.rows {
        text.push_str(&label(0, row + 1, to_index(row)));
        for column in 0..grid.columns {
            let index = grid.cell(row, column);
            let colour = COLOURS[usize::try_from(index % 8).unwrap_or(0)];
            writeln!(
                text,
                "<rect x=\"{}\" y=\"{}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{colour}\" \
                 stroke=\"#444\"/>",
                (column + 1) * CELL,
                (row + 2) * CELL
            )
            .expect("a string takes any text");
            text.push_str(&label(column + 1, row + 1, index));
        }
    }
    text.push_str("</svg>\n");
    Ok(text)
}

struct Grid {
    rows: usize,
    columns: usize,
    cells: Vec<i64>,
}

impl Grid {
    fn new(layout: &AnyLayout) -> Result<Self, LayoutError> {
        let cells = usize::try_from(layout.size()).unwrap_or(usize::MAX);
        if cells > MAX_CELLS {
            return Err(LayoutError::too_large(format!(
                "a picture of {} cells is above the limit of {MAX_CELLS}",
                layout.size()
            )));
        }
        let modes = layout.inner().modes();
        let rows = match modes.as_slice() {
            [_] => 1,
            _ => usize::try_from(modes[0].size()).expect("a factor of a small size"),
        };
        Ok(Self { rows, columns: cells / rows, cells: layout.map()? })
    }

    fn cell(&self, row: usize, column: usize) -> i64 {
        self.cells[row + column * self.rows]
    }
}

fn to_index(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mode_runs_down() {
        let grid = text_grid(&evaluate("(2,3):(3,1)").unwrap()).unwrap();
        assert_eq!(grid, "(2,3):(3,1)\n  | 0 1 2\n0 | 0 1 2\n1 | 3 4 5\n");
        let row = text_grid(&evaluate("3:2").unwrap()).unwrap();
        assert_eq!(row, "3:2\n  | 0 1 2\n0 | 0 2 4\n");
    }

    #[test]
    fn a_picture_has_a_cell_for_each_index() {
        let picture = svg(&evaluate("swizzle(1,0,1) o 0 o (2,2):(1,2)").unwrap()).unwrap();
        assert_eq!(picture.matches("<rect").count(), 4);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        let huge = evaluate("1000000000000:1").unwrap();
        assert_eq!(svg(&huge).unwrap_err().code(), "E0303");
        assert_eq!(text_grid(&huge).unwrap_err().code(), "E0303");
    }
}
