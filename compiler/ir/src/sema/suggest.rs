//! The known name that is closest to an unknown one.

/// The candidate with the fewest changed characters, when they are few for the length of the name.
/// Ties go to the candidate that is first in the alphabet.
pub(super) fn closest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let distance = distance(name, candidate);
        if distance <= limit && best.is_none_or(|b| (distance, candidate) < b) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours between two names.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let mut best =
                (rows[i][j + 1] + 1).min(row[j] + 1).min(rows[i][j] + usize::from(x != y));
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_a_stranger_is_not() {
        let known = ["reduce.add", "reduce.max", "rsqrt", "row"];
        assert_eq!(closest("reduce.ad", known), Some("reduce.add"));
        assert_eq!(closest("rsqtr", known), Some("rsqrt"));
        assert_eq!(closest("rwo", known), Some("row"));
        assert_eq!(closest("softmax", known), None);
    }
}
