//! How far many results are from what the emulator says, and from the exact values.

use kernel_abi::DType;
use kernel_abi::numeric::compare::ulp_distance;
use kernel_abi::numeric::to_f64;
use kernel_ir::ops::hardware::Slack;
use serde_json::{Value, json};

use super::products::ALIGNMENTS;

/// A greatest value, with the element where it was met.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Greatest {
    pub(crate) value: f64,
    /// Inputs, result, and what was wanted, as text; empty where everything is zero.
    pub(crate) at: String,
}

impl Greatest {
    /// Takes a value where it is greater.
    pub(crate) fn take(&mut self, value: f64, at: impl FnOnce() -> String) {
        if value > self.value {
            *self = Greatest { value, at: at() };
        }
    }

    fn add(&mut self, other: Greatest) {
        if other.value > self.value {
            *self = other;
        }
    }

    fn json(&self) -> Value {
        let at = (!self.at.is_empty()).then_some(&self.at);
        // An infinity is no number of JSON.
        let value = if self.value.is_finite() { json!(self.value) } else { json!("infinite") };
        json!({ "value": value, "at": at })
    }
}

/// What was measured of one output on one set of inputs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Measured {
    pub(crate) compared: u64,
    /// Bits that differ from the emulator's, but for NaN against NaN.
    pub(crate) different: u64,
    /// Outside of the bound.
    pub(crate) outside: u64,
    /// Not judged: the bound says nothing of sums that overflow on the way.
    pub(crate) unjudged: u64,
    /// Codes from the emulator's result.
    pub(crate) ulp: Greatest,
    /// Absolute difference of those results that are further away than the bound in codes.
    pub(crate) abs: Greatest,
    /// From the exact value, in units of the last place of it.
    pub(crate) exact: Greatest,
    /// Absolute difference from exact values up to 1.
    pub(crate) exact_abs: Greatest,
    /// Of a product: in units of the bound.
    pub(crate) units: Greatest,
    /// Of a group of products: results that an adder of each alignment gives too.
    pub(crate) like: [u64; ALIGNMENTS.len()],
    pub(crate) first: Option<String>,
}

impl Measured {
    /// Takes in what another part of the inputs gave; the earlier part is `self`.
    pub(crate) fn add(&mut self, other: Measured) {
        self.compared += other.compared;
        self.different += other.different;
        self.outside += other.outside;
        self.unjudged += other.unjudged;
        self.ulp.add(other.ulp);
        self.abs.add(other.abs);
        self.exact.add(other.exact);
        self.exact_abs.add(other.exact_abs);
        self.units.add(other.units);
        for (all, one) in self.like.iter_mut().zip(other.like) {
            *all += one;
        }
        self.first = self.first.take().or(other.first);
    }

    /// One result that must have these bits, or be any NaN for a NaN.
    pub(crate) fn exact(&mut self, dtype: DType, got: u64, want: u64, at: impl Fn() -> String) {
        self.compared += 1;
        if got == want
            || dtype.is_float() && ulp_distance(dtype, got, want) == 0 && is_nan(dtype, got)
        {
            return;
        }
        self.different += 1;
        let text = || format!("{}: {}, wanted {}", at(), show(dtype, got), show(dtype, want));
        let ulp = ulp_distance(dtype, got, want);
        self.ulp.take(if ulp == u64::MAX { f64::INFINITY } else { ulp as f64 }, text);
        self.miss(text);
    }

    /// One f32 of an approximate function, with its exact value.
    pub(crate) fn near(
        &mut self,
        got: u32,
        want: u32,
        truth: f64,
        slack: Slack,
        at: impl Fn() -> String,
    ) {
        self.compared += 1;
        let (f, w) = (f32::from_bits(got), f32::from_bits(want));
        if f.is_nan() && w.is_nan() {
            return;
        }
        let text = || {
            let show = |code: u32| show(DType::F32, u64::from(code));
            format!("{}: {}, the emulator {}, exact {truth:e}", at(), show(got), show(want))
        };
        self.exact.take(units_in_the_last_place(f64::from(f), truth), text);
        if truth.abs() <= 1.0 {
            self.exact_abs.take((f64::from(f) - truth).abs(), text);
        }
        if got == want {
            return;
        }
        self.different += 1;
        let ulp = ulp_distance(DType::F32, u64::from(got), u64::from(want));
        let ulps = if ulp == u64::MAX { f64::INFINITY } else { ulp as f64 };
        self.ulp.take(ulps, text);
        if ulp <= slack.ulp {
            return;
        }
        let abs = (f64::from(f) - f64::from(w)).abs();
        let abs = if abs.is_nan() { f64::INFINITY } else { abs };
        self.abs.take(abs, text);
        if abs > slack.abs {
            self.miss(text);
        }
    }

    /// One sum on the tensor core; `unit` is what `bound` counts.
    pub(crate) fn sum(
        &mut self,
        got: u32,
        want: u32,
        unit: f64,
        bound: f64,
        at: impl Fn() -> String,
    ) {
        self.compared += 1;
        let (f, w) = (f32::from_bits(got), f32::from_bits(want));
        if got == want || f.is_nan() && w.is_nan() {
            return;
        }
        self.different += 1;
        let text = || {
            let show = |code: u32| show(DType::F32, u64::from(code));
            format!("{}: {}, the emulator {}, unit {unit:e}", at(), show(got), show(want))
        };
        let difference = (f64::from(f) - f64::from(w)).abs();
        let units = if difference.is_nan() { f64::INFINITY } else { difference / unit };
        self.units.take(units, text);
        if units > bound {
            self.miss(text);
        }
    }

    /// What adders of each alignment give, beside a result.
    pub(crate) fn alike(&mut self, got: u32, aligned: [f32; ALIGNMENTS.len()]) {
        for (like, sum) in self.like.iter_mut().zip(aligned) {
            *like += u64::from(
                sum == f32::from_bits(got) || sum.is_nan() && is_nan(DType::F32, got.into()),
            );
        }
    }

    fn miss(&mut self, text: impl Fn() -> String) {
        self.outside += 1;
        self.first.get_or_insert_with(text);
    }

    /// What concerns every subject.
    pub(crate) fn json(&self) -> Value {
        json!({
            "compared": self.compared,
            "bits_differ": self.different,
            "outside": self.outside,
            "holds": self.outside == 0,
            "first_outside": self.first,
        })
    }

    pub(crate) fn json_of_function(&self, slack: Slack) -> Value {
        merged(
            self.json(),
            json!({
                "bound": { "ulp": slack.ulp, "or_abs": slack.abs },
                "greatest_ulp": self.ulp.json(),
                "greatest_abs_beyond_ulp": self.abs.json(),
                "greatest_ulp_from_exact": self.exact.json(),
                "greatest_abs_from_exact_up_to_1": self.exact_abs.json(),
            }),
        )
    }

    pub(crate) fn json_of_product(&self, unit: &str, bound: f64) -> Value {
        merged(
            self.json(),
            json!({
                "unit": unit,
                "bound": bound,
                "greatest": self.units.json(),
                "unjudged": self.unjudged,
                "same_as_adder_aligned": ALIGNMENTS
                    .iter()
                    .zip(self.like)
                    .filter(|(_, like)| *like > 0)
                    .map(|(way, like)| (way.name(), Value::from(like)))
                    .collect::<serde_json::Map<String, Value>>(),
            }),
        )
    }
}

/// Both objects as one.
pub(crate) fn merged(mut a: Value, b: Value) -> Value {
    if let (Some(a), Value::Object(b)) = (a.as_object_mut(), b) {
        a.extend(b);
    }
    a
}

pub(crate) fn show(dtype: DType, code: u64) -> String {
    kernel_tests::values::show(dtype, code)
}

fn is_nan(dtype: DType, code: u64) -> bool {
    to_f64(dtype, code).is_nan()
}

/// `|got - truth|` in units of the last place that f32 has at `truth`; 0 where both are infinite or not a number.
fn units_in_the_last_place(got: f64, truth: f64) -> f64 {
    // What rounds to an infinity is one.
    let is_out_of_range = |x: f64| x.abs() >= 3.402_823_567_797_336_6e38;
    if got.is_nan() && truth.is_nan()
        || got.is_infinite() && is_out_of_range(truth) && got.signum() == truth.signum()
    {
        return 0.0;
    }
    if !got.is_finite() || !truth.is_finite() {
        return f64::INFINITY;
    }
    let exponent = (truth.abs().to_bits() >> 52) as i32 - 1023;
    (got - truth).abs() / 2f64.powi(exponent.max(-126) - 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK: Slack = Slack { ulp: 2, abs: 1e-6 };

    fn near(got: f32, want: f32, truth: f64) -> Measured {
        let mut all = Measured::default();
        all.near(got.to_bits(), want.to_bits(), truth, SLACK, || "x".to_owned());
        all
    }

    #[test]
    fn the_last_place_is_that_of_the_exact_value() {
        let ulp = f64::from(f32::EPSILON);
        assert_eq!(units_in_the_last_place(1.0 + 2.0 * ulp, 1.0 + 0.5 * ulp), 1.5);
        assert_eq!(units_in_the_last_place(1.0, 1.0 - 0.5 * ulp), 1.0);
        assert_eq!(units_in_the_last_place(0.0, 2f64.powi(-150)), 0.5);
        assert_eq!(units_in_the_last_place(f64::INFINITY, 2f64.powi(128)), 0.0);
        assert_eq!(units_in_the_last_place(f64::INFINITY, 1.0), f64::INFINITY);
        assert_eq!(units_in_the_last_place(f64::NAN, f64::NAN), 0.0);
        assert_eq!(units_in_the_last_place(f64::NAN, 1.0), f64::INFINITY);
    }

    #[test]
    fn a_function_may_be_off_in_codes_or_absolutely() {
        let off = |codes: u32| f32::from_bits(1f32.to_bits() + codes);
        let found = near(off(2), 1.0, 1.0);
        assert_eq!((found.ulp.value, found.abs.value, found.outside), (2.0, 0.0, 0));
        let found = near(off(4), 1.0, 1.0);
        assert_eq!((found.ulp.value, found.outside), (4.0, 0), "within the absolute bound");
        assert!(found.abs.value > 4e-7);
        let found = near(off(40), 1.0, 1.0);
        assert_eq!((found.outside, found.exact.value), (1, 40.0));
        assert!(found.first.is_some_and(|text| text.starts_with("x: 1.000004")));
        assert_eq!(near(f32::NAN, 1.0, 1.0).outside, 1);
        assert_eq!(near(f32::NAN, -f32::NAN, f64::NAN).different, 0);
        assert_eq!(near(f32::INFINITY, 1.0, 1.0).outside, 1);
    }

    #[test]
    fn exact_results_have_the_bits_and_sums_their_unit() {
        let mut all = Measured::default();
        all.exact(DType::Bf16, 0x7fc0, 0x7fff, String::new);
        all.exact(DType::I32, 5, 5, String::new);
        assert_eq!((all.compared, all.outside), (2, 0));
        all.exact(DType::F32, 0x8000_0000, 0, || "zero".to_owned());
        all.exact(DType::U64, 7, 9, String::new);
        assert_eq!((all.outside, all.ulp.value), (2, 2.0));
        let mut sums = Measured::default();
        sums.sum(1f32.to_bits() + 3, 1f32.to_bits(), f64::from(f32::EPSILON), 4.0, String::new);
        assert_eq!((sums.units.value, sums.outside), (3.0, 0));
        sums.sum(f32::INFINITY.to_bits(), 1f32.to_bits(), 1.0, 4.0, String::new);
        assert_eq!((sums.outside, sums.compared), (1, 2));
        all.add(sums.clone());
        assert_eq!((all.compared, all.outside, all.units), (6, 3, sums.units));
        assert!(all.first.is_some_and(|text| text.starts_with("zero")));
    }

    #[test]
    fn the_report_names_bound_and_verdict() {
        let row = near(1.5, 1.0, 1.0).json_of_function(SLACK);
        assert_eq!((&row["holds"], &row["bound"]["ulp"]), (&json!(false), &json!(2)));
        assert_eq!(row["greatest_ulp_from_exact"]["value"], json!(4_194_304.0));
        let row = near(f32::NAN, 1.0, 1.0).json_of_function(SLACK);
        assert_eq!(row["greatest_ulp"]["value"], json!("infinite"));
        let row = Measured::default().json_of_product("u", 16.0);
        assert_eq!((&row["holds"], &row["bound"]), (&json!(true), &json!(16.0)));
    }
}
