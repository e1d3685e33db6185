//! What a GPU left in a buffer against what the emulator says.

use kernel_abi::DType;
use kernel_abi::numeric::compare::ulp_distance;
use kernel_abi::numeric::{read_element, to_f64};
use kernel_emulator::Buffer;
use kernel_ir::ops::hardware::Slack;

/// What outputs are filled with before a launch: far from any result, as f32 and as bf16.
pub(crate) const POISON: u8 = 0x7b;

/// How the elements of some buffers compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Elements that were compared.
    pub(crate) compared: u64,
    /// Those outside of the tolerance.
    pub(crate) outside: u64,
    /// The greatest distance in codes of floats that are no NaN.
    pub(crate) max_ulp: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.compared += other.compared;
        self.outside += other.outside;
        self.max_ulp = self.max_ulp.max(other.max_ulp);
    }
}

/// Compares every element; what the emulator never wrote must still be poison. Gives the first that is outside as text.
pub(crate) fn judge(want: &Buffer, got: &[u8], slack: Slack) -> (Tally, Option<String>) {
    let dtype = want.dtype();
    let poison = vec![POISON; got.len()];
    let mut tally = Tally::default();
    let mut first = None;
    for index in 0..want.len() {
        let written = want.code(index).filter(|_| want.is_written(index));
        let wanted = written.or_else(|| read_element(dtype, &poison, index));
        let (Some(wanted), Some(found)) = (wanted, read_element(dtype, got, index)) else {
            continue;
        };
        tally.compared += 1;
        let is_float = dtype.is_float() && written.is_some();
        let ulp = if is_float { ulp_distance(dtype, found, wanted) } else { 0 };
        if ulp != u64::MAX {
            tally.max_ulp = tally.max_ulp.max(ulp);
        }
        let fits =
            if is_float { is_near(dtype, found, wanted, ulp, slack) } else { found == wanted };
        if !fits {
            tally.outside += 1;
            first.get_or_insert_with(|| {
                format!("element {index}: {}, wanted {}", show(dtype, found), show(dtype, wanted))
            });
        }
    }
    (tally, first)
}

/// Without slack the same bits, but any NaN for a NaN; otherwise within either bound.
fn is_near(dtype: DType, found: u64, wanted: u64, ulp: u64, slack: Slack) -> bool {
    let [a, b] = [found, wanted].map(|code| to_f64(dtype, code));
    if a.is_nan() || b.is_nan() {
        return a.is_nan() && b.is_nan();
    }
    if slack == Slack::EXACT {
        return found == wanted;
    }
    ulp <= slack.ulp || (a - b).abs() <= slack.abs
}

fn show(dtype: DType, code: u64) -> String {
    kernel_tests::values::show(dtype, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(want: &[u32], got: &[u32], slack: Slack) -> u64 {
        let codes: Vec<u64> = want.iter().map(|&code| u64::from(code)).collect();
        let buffer = Buffer::from_codes(DType::F32, &codes);
        let bytes: Vec<u8> = got.iter().flat_map(|code| code.to_le_bytes()).collect();
        judge(&buffer, &bytes, slack).0.outside
    }

    #[test]
    fn without_slack_bits_decide_and_any_nan_is_one() {
        let one = 1f32.to_bits();
        assert_eq!(outside(&[one, 0x7fc0_0000], &[one, 0x7fff_ffff], Slack::EXACT), 0);
        assert_eq!(outside(&[one, 0], &[one + 1, 0x8000_0000], Slack::EXACT), 2);
        assert_eq!(
            outside(&[0x7fc0_0000, one], &[one, 0x7fc0_0000], Slack { ulp: 9, abs: 9.0 }),
            2
        );
    }

    #[test]
    fn either_bound_of_a_slack_is_enough() {
        let one = 1f32.to_bits();
        let slack = Slack { ulp: 2, abs: 1e-3 };
        assert_eq!(outside(&[one, one, one], &[one + 2, one + 3, one + 100_000], slack), 1);
        assert_eq!(outside(&[1e-4f32.to_bits()], &[(-1e-4f32).to_bits()], slack), 0);
    }

    #[test]
    fn what_nobody_wrote_is_still_poison() {
        let buffer = Buffer::poison(DType::F32, 1);
        assert_eq!(judge(&buffer, &[POISON; 4], Slack::EXACT).0.outside, 0);
        assert_eq!(judge(&buffer, &[0; 4], Slack::EXACT).0.outside, 1);
    }
}
