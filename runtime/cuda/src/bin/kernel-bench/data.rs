//! What the parameters of kernels hold: random elements by the recipe of `kernel_abi::numeric::random`, within their
//! contracts.

use std::collections::BTreeMap;
use std::ops::Range;

use kernel_abi::numeric::random::{self, Distinct, IntRange};
use kernel_abi::numeric::{bytes_of, float_from_f64, write_element};
use kernel_abi::plan::{ContractSpec, ExtentSpec, ParamSpec, Scalar, Signature, UpperBound};
use kernel_abi::{Access, DType};
use kernel_runtime::RuntimeError;

/// Elements that are drawn for one buffer; a longer one repeats them. A power of two.
const DRAWN: u64 = 1 << 22;

/// The scalars of a kernel.
pub(crate) type Scalars = BTreeMap<String, Scalar>;

/// What a buffer holds before the first launch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    /// Random elements, integers within the range.
    Random(Option<IntRange>),
    /// One value everywhere, as its code.
    Value(u64),
}

/// A buffer that a parameter needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Need {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) elements: u64,
    pub(crate) content: Content,
}

impl Need {
    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.elements.saturating_mul(u64::from(self.dtype.bits())).div_ceil(8)
    }
}

fn refused(kernel: &str, fault: String) -> RuntimeError {
    RuntimeError::Arguments { kernel: kernel.to_owned(), fault }
}

/// The scalars of a kernel: those that are given, otherwise the greatest that the contract allows.
///
/// # Errors
/// One is neither given nor bound by a contract, or the given one does not fit its type.
pub(crate) fn scalars(
    kernel: &str,
    signature: &Signature,
    given: &BTreeMap<String, f64>,
) -> Result<Scalars, RuntimeError> {
    let mut all = Scalars::new();
    for param in signature.params.iter().filter(|param| param.access == Access::Scalar) {
        let name = &param.name;
        let most = match &param.contract {
            Some(ContractSpec { hi: UpperBound::Const(hi), .. }) => Some((*hi - 1) as f64),
            Some(ContractSpec { hi: UpperBound::Scalar(..), .. }) | None => None,
        };
        let value = given.get(name).copied().or(most).ok_or_else(|| {
            refused(kernel, format!("no value is known for `{name}`: --scalar {name}=VALUE"))
        })?;
        let is_integer = value.fract() == 0.0 && value.abs() <= f64::from(i32::MAX);
        let scalar = match param.dtype {
            DType::F32 => Scalar::F32(value as f32),
            DType::I32 if is_integer => Scalar::I32(value as i32),
            other => return Err(refused(kernel, format!("`{name}` is {other}, not {value}"))),
        };
        all.insert(name.clone(), scalar);
    }
    Ok(all)
}

/// The integer of a scalar.
fn integer(scalars: &Scalars, name: &str) -> Option<i64> {
    scalars.get(name).and_then(|scalar| scalar.integer())
}

/// The buffer of a parameter; none of a scalar.
///
/// # Errors
/// Its size or its contract cannot be counted, or a value that is given for it is not one of its type.
pub(crate) fn need(
    kernel: &str,
    param: &ParamSpec,
    scalars: &Scalars,
    fills: &BTreeMap<String, f64>,
) -> Result<Option<Need>, RuntimeError> {
    let name = &param.name;
    let is_read = match param.access {
        Access::Multicast | Access::Scalar => return Ok(None),
        Access::Static | Access::Input | Access::Inout | Access::Peer => true,
        Access::Output | Access::Scratch => false,
    };
    let mut elements = Some(1_u64);
    for extent in &param.shape {
        let extent = match extent {
            ExtentSpec::Const(extent) => Some(*extent),
            ExtentSpec::Scalar(scalar) => {
                integer(scalars, scalar).and_then(|value| u64::try_from(value).ok())
            }
        };
        elements = elements.zip(extent).and_then(|(all, extent)| all.checked_mul(extent));
    }
    let elements =
        elements.ok_or_else(|| refused(kernel, format!("the extents of `{name}` are no size")))?;
    let range = match &param.contract {
        Some(contract) if is_read && param.dtype.is_int() => {
            Some(range(kernel, name, contract, scalars)?)
        }
        Some(_) | None => None,
    };
    // Words that a kernel counts with start at 0; so does what is written before it is read.
    let starts_at_zero = !is_read
        || (param.access == Access::Inout && param.dtype.is_int() && param.contract.is_none());
    let content = match fills.get(name) {
        Some(&value) => Content::Value(code(param.dtype, value).ok_or_else(|| {
            refused(kernel, format!("`{name}` is {}, {value} is none", param.dtype))
        })?),
        None if starts_at_zero => Content::Value(0),
        None => Content::Random(range),
    };
    Ok(Some(Need { name: name.clone(), dtype: param.dtype, elements, content }))
}

/// The code of a value; integers must have it exactly.
fn code(dtype: DType, value: f64) -> Option<u64> {
    if dtype.is_float() {
        return float_from_f64(dtype, value);
    }
    let bits = dtype.bits();
    let least = if dtype.is_signed_int() { -(2_f64.powi(bits as i32 - 1)) } else { 0.0 };
    let end = if dtype.is_signed_int() { -least } else { 2_f64.powi(bits as i32) };
    let holds =
        value.fract() == 0.0 && (least..end).contains(&value) && value.abs() < 2_f64.powi(53);
    holds.then(|| (value as i64 as u64) & (u64::MAX >> (64 - bits)))
}

fn range(
    kernel: &str,
    name: &str,
    contract: &ContractSpec,
    scalars: &Scalars,
) -> Result<IntRange, RuntimeError> {
    let hi = match &contract.hi {
        UpperBound::Const(hi) => Some(*hi),
        UpperBound::Scalar(scalar, offset) => {
            integer(scalars, scalar).and_then(|value| value.checked_add(*offset))
        }
    };
    let hi = hi.ok_or_else(|| refused(kernel, format!("the contract of `{name}` has no bound")))?;
    let distinct = contract.distinct.then_some(Distinct { except: contract.except });
    Ok(IntRange { range: Range { start: contract.lo, end: hi }, distinct })
}

/// The first bytes of a buffer: all of it, or a block that the rest repeats.
///
/// # Errors
/// No elements obey the contract.
pub(crate) fn block(need: &Need, seed: u64, stream: u64) -> Result<Vec<u8>, RuntimeError> {
    let fault = |text: String| refused("random data", format!("`{}`: {text}", need.name));
    let is_distinct = |range: &IntRange| range.distinct.is_some();
    let whole = matches!(&need.content, Content::Random(Some(range)) if is_distinct(range));
    let count = if whole { need.elements } else { need.elements.min(DRAWN) };
    let count = usize::try_from(count).map_err(|_| fault("too many elements".to_owned()))?;
    let codes = match &need.content {
        Content::Random(range) => random::codes(need.dtype, count, seed, stream, range.as_ref())
            .map_err(|error| fault(error.to_string()))?,
        Content::Value(code) => vec![*code; count],
    };
    let mut bytes = vec![0; bytes_of(need.dtype, count)];
    for (at, code) in codes.into_iter().enumerate() {
        write_element(need.dtype, &mut bytes, at, code);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(name: &str, access: Access, dtype: DType, shape: Vec<ExtentSpec>) -> ParamSpec {
        ParamSpec::new(name, access, dtype, shape)
    }

    fn contract(lo: i64, hi: UpperBound, distinct: bool) -> Option<ContractSpec> {
        Some(ContractSpec { lo, hi, distinct, except: None })
    }

    fn of(list: &[(&str, f64)]) -> BTreeMap<String, f64> {
        list.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn scalars_are_given_or_follow_from_their_contract_or_are_refused() {
        let rows = ParamSpec {
            contract: contract(1, UpperBound::Const(9), false),
            ..param("rows", Access::Scalar, DType::I32, Vec::new())
        };
        let eps = param("eps", Access::Scalar, DType::F32, Vec::new());
        let signature = Signature::new(vec![rows, eps], false);
        let found = scalars("k", &signature, &of(&[("eps", 0.5)])).unwrap();
        assert_eq!(found["rows"], Scalar::I32(8));
        assert_eq!(found["eps"], Scalar::F32(0.5));
        let error = scalars("k", &signature, &of(&[])).unwrap_err();
        assert_eq!(error.code().name(), "R0305");
        assert_eq!(error.to_string(), "k: no value is known for `eps`: --scalar eps=VALUE");
        let error = scalars("k", &signature, &of(&[("eps", 1.0), ("rows", 2.5)])).unwrap_err();
        assert_eq!(error.to_string(), "k: `rows` is i32, not 2.5");
    }

    #[test]
    fn integers_obey_their_contracts_and_counters_start_at_zero() {
        let rows = Scalars::from([("rows".to_owned(), Scalar::I32(6))]);
        let shape = || vec![ExtentSpec::Scalar("rows".to_owned()), ExtentSpec::Const(2)];
        let ids = ParamSpec {
            contract: contract(3, UpperBound::Scalar("rows".to_owned(), 12), true),
            ..param("ids", Access::Input, DType::I32, shape())
        };
        let found = need("k", &ids, &rows, &of(&[])).unwrap().unwrap();
        assert_eq!((found.elements, found.bytes()), (12, 48));
        let bytes = block(&found, 1, 0).unwrap();
        let mut values: Vec<u8> = bytes.chunks(4).map(|word| word[0]).collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), 12);
        assert!(values.iter().all(|value| (3..18).contains(value)), "{values:?}");
        let done = param("done", Access::Inout, DType::U32, vec![ExtentSpec::Const(3)]);
        let done = need("k", &done, &rows, &of(&[])).unwrap().unwrap();
        assert_eq!(block(&done, 1, 0).unwrap(), [0; 12]);
        let lost = param("x", Access::Input, DType::F32, vec![ExtentSpec::Scalar("n".to_owned())]);
        let error = need("k", &lost, &rows, &of(&[])).unwrap_err();
        assert_eq!(error.to_string(), "k: the extents of `x` are no size");
        let few = ParamSpec {
            contract: contract(0, UpperBound::Const(5), true),
            ..param("few", Access::Input, DType::I32, shape())
        };
        let few = need("k", &few, &rows, &of(&[])).unwrap().unwrap();
        assert_eq!(block(&few, 1, 0).unwrap_err().code().name(), "R0305");
    }

    #[test]
    fn values_fill_buffers_where_their_type_has_them() {
        let x = param("x", Access::Input, DType::Bf16, vec![ExtentSpec::Const(2)]);
        let x = need("k", &x, &Scalars::new(), &of(&[("x", 1.0)])).unwrap().unwrap();
        assert_eq!(block(&x, 1, 0).unwrap(), [0x80, 0x3f, 0x80, 0x3f]);
        let n = param("n", Access::Input, DType::U8, vec![ExtentSpec::Const(2)]);
        let error = need("k", &n, &Scalars::new(), &of(&[("n", -1.0)])).unwrap_err();
        assert_eq!(error.to_string(), "k: `n` is u8, -1 is none");
        assert_eq!(code(DType::I8, -128.0), Some(0x80));
        assert_eq!(code(DType::I32, 0.5), None);
    }

    #[test]
    fn long_buffers_repeat_a_block() {
        let w = param("w", Access::Static, DType::E2m1, vec![ExtentSpec::Const(1 << 40)]);
        let w = need("k", &w, &Scalars::new(), &of(&[])).unwrap().unwrap();
        assert_eq!(w.bytes(), 1 << 39);
        assert_eq!(block(&w, 1, 0).unwrap().len() as u64, DRAWN / 2);
    }
}
