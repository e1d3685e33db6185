//! Stable text of both levels, for people, snapshots and `kernelc emit`.

mod device;
mod kernel;

use std::fmt::Write;

pub(crate) use kernel::spread;

use crate::device::DeviceKernel;
use crate::index::IndexVec;
use crate::kernel::{CachePolicy, Evict, Extent, Kernel, Launch, Literal, Param, ParamId, Pdl};

/// The kernel level as text: one statement a line, each tile with its distribution.
pub fn kernel(kernel: &Kernel) -> String {
    let mut text = String::new();
    kernel::print(&mut text, kernel);
    text
}

/// The device level as text: one statement a line.
pub fn device(device: &DeviceKernel) -> String {
    let mut text = String::new();
    device::print(&mut text, device);
    text
}

/// Appends a line to a text; writing to a `String` cannot fail.
macro_rules! line {
    ($text:expr, $depth:expr, $($format:tt)*) => {{
        super::indent($text, $depth);
        let _ = std::fmt::Write::write_fmt($text, format_args!($($format)*));
        $text.push('\n');
    }};
}
use line;

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("    ", depth));
}

fn launch(launch: &Launch) -> String {
    let [x, y, z] = launch.grid;
    let pdl = match launch.pdl {
        Pdl::None => "none",
        Pdl::Producer => "producer",
        Pdl::Consumer => "consumer",
        Pdl::Both => "both",
    };
    let mut text = format!("launch grid ({x}, {y}, {z}), warps {}, pdl {pdl}", launch.warps);
    if launch.cluster_size() > 1 {
        let [x, y, z] = launch.cluster;
        let _ = write!(text, ", cluster ({x}, {y}, {z})");
    }
    if let Some(n) = launch.min_ctas {
        let _ = write!(text, ", min_ctas {n}");
    }
    if let Some(world) = launch.world {
        let _ = write!(text, ", world {world}");
    }
    if launch.resident {
        text.push_str(", resident all");
    }
    text
}

fn param(id: ParamId, param: &Param, params: &IndexVec<ParamId, Param>) -> String {
    let mut text = String::new();
    let words = param.words.map(|words| format!("{} ", words.name())).unwrap_or_default();
    if param.settled {
        text.push_str("settled ");
    }
    let _ = write!(text, "{} {words}{id} {}: {}", param.access, param.name, param.dtype);
    if !param.shape.is_empty() {
        let extents: Vec<String> = param.shape.iter().map(|e| extent(*e, params)).collect();
        let _ = write!(text, "[{}]", extents.join(", "));
    }
    if let Some(layout) = &param.stored {
        let _ = write!(text, " stored {layout}");
    }
    if let Some(scaled) = &param.scaled {
        let _ = write!(text, " scaled_by({}, group = {})", params[scaled.by].name, scaled.group);
    }
    if let Some(of) = param.of {
        let _ = write!(text, " of {}", params[of].name);
    }
    if let Some(contract) = &param.contract {
        let hi = match contract.hi {
            crate::kernel::ContractBound::Const(hi) => hi.to_string(),
            crate::kernel::ContractBound::Scalar(id, 0) => params[id].name.clone(),
            crate::kernel::ContractBound::Scalar(id, n) => format!("{} + {n}", params[id].name),
        };
        let _ = write!(text, " in {}..{hi}", contract.lo);
        if let Some(distinct) = contract.distinct {
            text.push_str(" distinct");
            if let Some(value) = distinct.except {
                let _ = write!(text, " except {value}");
            }
        }
    }
    text
}

fn extent(extent: Extent, params: &IndexVec<ParamId, Param>) -> String {
    match extent {
        Extent::Const(c) => c.to_string(),
        Extent::Scalar(id) => params[id].name.clone(),
    }
}

fn shape(shape: &[u32]) -> String {
    if shape.is_empty() {
        return String::new();
    }
    let extents: Vec<String> = shape.iter().map(u32::to_string).collect();
    format!("[{}]", extents.join(", "))
}

fn literal(literal: Literal) -> String {
    match literal {
        Literal::Float(x) => format!("{x:?}"),
        Literal::Int(x) => x.to_string(),
        Literal::Bool(x) => x.to_string(),
    }
}

fn evict(evict: Option<Evict>) -> &'static str {
    match evict {
        Some(Evict::First) => " evict first",
        Some(Evict::Last) => " evict last",
        None => "",
    }
}

fn cache(policy: CachePolicy) -> String {
    let allocate = if policy.no_allocate { " no_allocate" } else { "" };
    format!("{}{allocate}", evict(policy.evict))
}
