//! What is checked and known at launch: arguments, extents, contracts.

use kernel_abi::numeric::{self, random};
use kernel_abi::{Access, DType, trace};
use kernel_dsl::source::Span;
use kernel_ir::index::{Id, IndexVec};
use kernel_ir::kernel::{Contract, ContractBound, Extent, Literal, Param, ParamId, Words};
use kernel_ir::ops::elements::literal_code;

use crate::error::{EmuError, ErrorKind};
use crate::memory::{Argument, Buffer, Memory};

/// Elements of one buffer at most: what a 64-bit count of bits still holds with room to spare.
const MAX_ELEMENTS: u64 = 1 << 40;

/// What a scalar that measures something is without a contract, when it is made up.
const MEASURE: i64 = 16;

/// Extents of every parameter with run-time scalars put in.
pub(crate) type Extents = IndexVec<ParamId, Vec<u64>>;

/// Checks every argument against its parameter and the contracts of what the kernel reads; returns the
/// extents.
pub(crate) fn check(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
) -> Result<Extents, EmuError> {
    let extents = check_arguments(params, memory)?;
    check_contracts(params, memory)?;
    Ok(extents)
}

/// Checks every argument against its parameter, but for the values of buffers; returns the extents.
pub(crate) fn check_arguments(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
) -> Result<Extents, EmuError> {
    if memory.arguments.len() != params.len() {
        let (found, needed) = (memory.arguments.len(), params.len());
        let span = params.iter().next().map_or(Span::default(), |p| p.span);
        let message = format!("{found} arguments for {needed} parameters");
        return Err(EmuError::new(ErrorKind::Argument, span, message));
    }
    let mut extents = Extents::new();
    for (id, param) in params.iter_enumerated() {
        let shape = extents_of(param, params, memory)?;
        check_argument(param, &shape, &memory.arguments[id])?;
        extents.push(shape);
    }
    Ok(extents)
}

/// Checks the contracts of what the kernel reads.
pub(crate) fn check_contracts(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
) -> Result<(), EmuError> {
    for (id, param) in params.iter_enumerated() {
        if param.access != Access::Output {
            check_contract(params, memory, id, "at launch")?;
        }
    }
    Ok(())
}

/// Checks the contracts that the kernel's stores promise.
pub(crate) fn check_promises(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
) -> Result<(), EmuError> {
    for (id, param) in params.iter_enumerated() {
        if param.access.is_writable() {
            check_contract(params, memory, id, "after the run")?;
        }
    }
    Ok(())
}

fn bad_argument(param: &Param, message: String) -> EmuError {
    EmuError::new(ErrorKind::Argument, param.span, message)
}

/// The value of a scalar parameter as an integer.
pub(crate) fn scalar(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
    id: ParamId,
) -> Result<i64, EmuError> {
    let param = &params[id];
    match memory.arguments.get(id) {
        Some(&Argument::Scalar { dtype, code }) if dtype == param.dtype => {
            numeric::to_i64(dtype, code).ok_or_else(|| {
                bad_argument(param, format!("`{}` has no integer value that fits", param.name))
            })
        }
        Some(&Argument::Scalar { dtype, .. }) => Err(bad_argument(
            param,
            format!("`{}` is a scalar of {}, the argument has {dtype}", param.name, param.dtype),
        )),
        Some(Argument::Missing | Argument::Buffer(_)) | None => {
            Err(bad_argument(param, format!("the scalar `{}` has no value", param.name)))
        }
    }
}

fn extents_of(
    param: &Param,
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
) -> Result<Vec<u64>, EmuError> {
    let extent = |e: &Extent| match *e {
        Extent::Const(c) => Ok(u64::from(c)),
        Extent::Scalar(id) => {
            let value = scalar(params, memory, id)?;
            u64::try_from(value).map_err(|_| {
                let message = format!(
                    "the extent `{}` of `{}` is {value}, below zero",
                    params[id].name, param.name
                );
                bad_argument(param, message)
            })
        }
    };
    let shape = param.shape.iter().map(extent).collect::<Result<Vec<u64>, _>>()?;
    if len_of(&shape).is_none() {
        let message = format!("`{}` has too many elements: extents {shape:?}", param.name);
        return Err(bad_argument(param, message));
    }
    Ok(shape)
}

/// The number of elements, if it is within the limit.
pub(crate) fn len_of(shape: &[u64]) -> Option<u64> {
    let len = shape.iter().try_fold(1u64, |n, &e| n.checked_mul(e))?;
    (len <= MAX_ELEMENTS).then_some(len)
}

fn check_argument(param: &Param, shape: &[u64], argument: &Argument) -> Result<(), EmuError> {
    let name = &param.name;
    let is_scalar = param.access == Access::Scalar;
    match argument {
        // The memory that it reaches is another parameter.
        Argument::Missing if param.access == Access::Multicast => Ok(()),
        Argument::Missing => {
            let what = if is_scalar { "scalar" } else { "buffer" };
            Err(bad_argument(param, format!("the {what} `{name}` is missing")))
        }
        Argument::Scalar { dtype, .. } if is_scalar && *dtype == param.dtype => Ok(()),
        Argument::Scalar { dtype, .. } => {
            let wanted = if is_scalar { "a scalar" } else { "a buffer" };
            Err(bad_argument(
                param,
                format!(
                    "`{name}` is {wanted} of {}, the argument is a scalar of {dtype}",
                    param.dtype
                ),
            ))
        }
        Argument::Buffer(buffer) => {
            let len = len_of(shape).expect("extents are checked when they are made");
            // A packed buffer made from bytes may end with half a byte to spare.
            let spare = u64::from(param.dtype.bytes().is_none() && !len.is_multiple_of(2));
            let fits = buffer.len() as u64 == len || buffer.len() as u64 == len + spare;
            if !is_scalar && buffer.dtype() == param.dtype && fits {
                return Ok(());
            }
            let wanted = if is_scalar { "a scalar".into() } else { format!("{len} elements") };
            Err(bad_argument(
                param,
                format!(
                    "`{name}` is {wanted} of {}, the argument has {} elements of {}",
                    param.dtype,
                    buffer.len(),
                    buffer.dtype()
                ),
            ))
        }
    }
}

/// The interval of a contract, start included, end not.
fn interval(
    contract: &Contract,
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
) -> Result<(i64, i64), EmuError> {
    let hi = match contract.hi {
        ContractBound::Const(hi) => hi,
        ContractBound::Scalar(id, offset) => scalar(params, memory, id)?.saturating_add(offset),
    };
    Ok((contract.lo, hi))
}

fn check_contract(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
    id: ParamId,
    when: &str,
) -> Result<(), EmuError> {
    let param = &params[id];
    let Some(contract) = &param.contract else { return Ok(()) };
    let (lo, hi) = interval(contract, params, memory)?;
    let fail = |index: Option<usize>, message: String| {
        let error = EmuError::new(ErrorKind::Contract, param.span, message);
        let coordinate = index.map(|i| {
            let shape = extents_of(param, params, memory).unwrap_or_default();
            coordinate(&shape, i as u64)
        });
        Err(error.at(coordinate.unwrap_or_default()))
    };
    let outside = |value: i64| value < lo || value >= hi;
    let codes: Vec<(usize, u64)> = match &memory.arguments[id] {
        Argument::Missing => return Ok(()),
        Argument::Scalar { code, .. } => vec![(0, *code)],
        Argument::Buffer(b) => (0..b.len()).filter_map(|i| Some((i, b.code(i)?))).collect(),
    };
    let mut values = Vec::with_capacity(codes.len());
    for (index, code) in codes {
        let place = (param.access != Access::Scalar).then_some(index);
        let value = if param.dtype.is_float() {
            let value = numeric::to_f64(param.dtype, code);
            if value >= lo as f64 && value < hi as f64 {
                continue;
            }
            return fail(place, format!("`{}` is {value} {when}, outside {lo}..{hi}", param.name));
        } else {
            // What i64 cannot hold is above every bound.
            numeric::to_i64(param.dtype, code).unwrap_or(i64::MAX)
        };
        if outside(value) {
            return fail(place, format!("`{}` is {value} {when}, outside {lo}..{hi}", param.name));
        }
        values.push((value, index));
    }
    if let Some(distinct) = contract.distinct {
        values.retain(|&(value, _)| Some(value) != distinct.except);
        values.sort_unstable();
        if let Some(pair) = values.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (value, index) = pair[1];
            let message =
                format!("`{}` is {value} twice {when}, and is declared distinct", param.name);
            return fail(Some(index), message);
        }
    }
    Ok(())
}

/// The coordinate of a flat element, outermost first.
pub(crate) fn coordinate(shape: &[u64], mut index: u64) -> Vec<i64> {
    let mut coordinate = vec![0; shape.len()];
    for (axis, (c, &extent)) in coordinate.iter_mut().zip(shape).enumerate().rev() {
        if axis == 0 || extent == 0 {
            *c = index as i64;
        } else {
            *c = (index % extent) as i64;
            index /= extent;
        }
    }
    coordinate
}

/// True for what a launch needs and nobody has given.
pub(crate) fn is_missing(params: &IndexVec<ParamId, Param>, memory: &Memory, id: ParamId) -> bool {
    memory.arguments[id] == Argument::Missing && params[id].access != Access::Multicast
}

/// See [`Memory::fill_missing`].
pub(crate) fn fill_missing(
    params: &IndexVec<ParamId, Param>,
    memory: &mut Memory,
    seed: u64,
) -> Result<(), EmuError> {
    let mut missing: Vec<ParamId> =
        params.ids().filter(|&id| is_missing(params, memory, id)).collect();
    // Scalars before buffers, and scalars whose contract names another after that one.
    missing.sort_by_key(|&id| {
        let bound = params[id].contract.as_ref().map(|c| c.hi);
        let depends = matches!(bound, Some(ContractBound::Scalar(..)));
        (params[id].access != Access::Scalar, depends)
    });
    for id in missing {
        let param = &params[id];
        let range = match &param.contract {
            None => None,
            Some(contract) => {
                let (lo, hi) = interval(contract, params, memory)?;
                let distinct = contract.distinct.map(|d| random::Distinct { except: d.except });
                Some(random::IntRange { range: lo..hi, distinct })
            }
        };
        let stream = id.index() as u64;
        let draw = |len| {
            random::codes(param.dtype, len, seed, stream, range.as_ref()).map_err(|e| {
                bad_argument(param, format!("no random data for `{}`: {e}", param.name))
            })
        };
        memory.arguments[id] = match param.access {
            // Counters and flags start at zero, and so do the epochs that count what raises them, and events.
            _ if param.words == Some(Words::Counter)
                || param.name == trace::PARAM
                || (param.words.is_some() && params.iter().any(Param::is_raised)) =>
            {
                let len = buffer_len(param, params, memory)?;
                Argument::Buffer(Buffer::from_codes(param.dtype, &vec![0; len]))
            }
            Access::Scalar if is_measure(params, id) => {
                let value = range.as_ref().map_or(MEASURE, |r| r.range.end.saturating_sub(1));
                let code = literal_code(param.dtype, Literal::Int(value));
                let code = code.ok_or_else(|| {
                    bad_argument(param, format!("`{}` cannot be {value}", param.name))
                })?;
                Argument::Scalar { dtype: param.dtype, code }
            }
            Access::Scalar => Argument::Scalar { dtype: param.dtype, code: draw(1)?[0] },
            Access::Static | Access::Input | Access::Inout => {
                let len = buffer_len(param, params, memory)?;
                Argument::Buffer(Buffer::from_codes(param.dtype, &draw(len)?))
            }
            Access::Multicast => Argument::Missing,
            Access::Output | Access::Scratch | Access::Peer => {
                Argument::Buffer(Buffer::poison(param.dtype, buffer_len(param, params, memory)?))
            }
        };
    }
    Ok(())
}

/// True for a scalar that is an extent of a buffer or bounds a contract.
fn is_measure(params: &IndexVec<ParamId, Param>, id: ParamId) -> bool {
    params.iter().any(|p| {
        p.shape.contains(&Extent::Scalar(id))
            || matches!(&p.contract, Some(c) if matches!(c.hi, ContractBound::Scalar(s, _) if s == id))
    })
}

fn buffer_len(
    param: &Param,
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
) -> Result<usize, EmuError> {
    let shape = extents_of(param, params, memory)?;
    let len = len_of(&shape).expect("extents are checked when they are made");
    usize::try_from(len)
        .map_err(|_| bad_argument(param, format!("`{}` has too many elements", param.name)))
}

/// How messages call an element type and its count.
pub(crate) fn bytes_of_elements(dtype: DType, elements: u64) -> u64 {
    (elements * u64::from(dtype.bits())).div_ceil(8)
}
