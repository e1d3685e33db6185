//! What every node is given: each parameter of a kernel has a buffer or scalar of its type and size, what
//! collectives and copies move fits.

use super::{Checker, Touch, integers};
use crate::plan::{
    Argument, ArgumentValue, BufferId, ExtentSpec, KernelKey, Node, NodeOp, ParamSpec, PlanCode,
    Scalar,
};
use crate::{Access, DType};

impl<'p> Checker<'p> {
    /// What every node touches; checks arguments and sizes on the way.
    pub(super) fn accesses(&mut self) -> Vec<Touch<'p>> {
        let mut touches = Vec::new();
        for (i, node) in self.plan.nodes.iter().enumerate() {
            match &node.op {
                NodeOp::Kernel { kernel, args } => {
                    self.kernel(i, node, kernel, args, &mut touches);
                }
                NodeOp::AllReduce { src, dst } => {
                    let (from, to) = (self.buffer(*src), self.buffer(*dst));
                    if from.dtype != to.dtype
                        || from.elements() != to.elements()
                        || !is_summed(from.dtype)
                    {
                        let message = format!(
                            "a sum of `{}` into `{}`: both must be f32, f16 or bf16 of one size",
                            from.name, to.name
                        );
                        self.error(PlanCode::Collective, &node.name, message);
                    }
                    self.whole(i, *src, true, &mut touches);
                    self.whole(i, *dst, false, &mut touches);
                }
                NodeOp::AllGather { src, dst, rows } => {
                    self.rows(node, *src, *dst, *rows);
                    self.whole(i, *src, true, &mut touches);
                    self.whole(i, *dst, false, &mut touches);
                }
                NodeOp::ReduceScatter { src, dst, rows } => {
                    self.rows(node, *dst, *src, *rows);
                    if !is_summed(self.buffer(*src).dtype) {
                        let message = "a sum of elements that are not f32, f16 or bf16".into();
                        self.error(PlanCode::Collective, &node.name, message);
                    }
                    self.whole(i, *src, true, &mut touches);
                    self.whole(i, *dst, false, &mut touches);
                }
                NodeOp::Copy { src, dst } => {
                    let same = self.buffer(src.buffer).dtype == self.buffer(dst.buffer).dtype;
                    let overlap = src.len > 0
                        && dst.len > 0
                        && src.buffer == dst.buffer
                        && src.start < dst.start + dst.len
                        && dst.start < src.start + src.len;
                    if !same || src.len != dst.len || overlap {
                        let message =
                            "a copy between pieces that overlap, or of two types or sizes".into();
                        self.error(PlanCode::Collective, &node.name, message);
                    }
                    for (region, reads) in [(src, true), (dst, false)] {
                        let end = region.start + region.len;
                        touches.push(Touch::plain(i, (region.buffer, region.start, end), reads));
                    }
                }
            }
        }
        touches
    }

    fn whole(&self, node: usize, buffer: BufferId, reads: bool, touches: &mut Vec<Touch<'p>>) {
        let end = self.buffer(buffer).elements().unwrap_or(0);
        touches.push(Touch::plain(node, (buffer, 0, end), reads));
    }

    /// `part` has `rows` rows of a size, `all` as many of `ranks` times the size.
    fn rows(&mut self, node: &Node, part: BufferId, all: BufferId, rows: u64) {
        let (p, a) = (self.buffer(part), self.buffer(all));
        let sizes = p.elements().zip(a.elements()).filter(|(p, a)| {
            rows > 0
                && p % rows == 0
                && p.checked_mul(u64::from(self.plan.ranks)) == Some(*a)
                && part != all
        });
        if sizes.is_none() || p.dtype != a.dtype {
            let message = format!(
                "`{}` and `{}` are not {rows} rows of a part and of the parts of {} ranks",
                p.name, a.name, self.plan.ranks
            );
            self.error(PlanCode::Collective, &node.name, message);
        }
    }

    fn kernel(
        &mut self,
        index: usize,
        node: &Node,
        kernel: &KernelKey,
        args: &[Argument],
        touches: &mut Vec<Touch<'p>>,
    ) {
        let Some(signature) = self.signatures.get(kernel) else {
            let message = format!("there is no kernel {kernel}");
            self.error(PlanCode::Argument, &node.name, message);
            return;
        };
        for arg in args {
            let count = args.iter().filter(|other| other.param == arg.param).count();
            if signature.param(&arg.param).is_none() || count != 1 {
                let message =
                    format!("`{}` is no parameter of {kernel}, or given twice", arg.param);
                self.error(PlanCode::Argument, &node.name, message);
            }
        }
        for param in &signature.params {
            if param.access == Access::Multicast {
                let message = format!(
                    "`{}` of {kernel} is a multicast address, which no executor of plans sets up",
                    param.name
                );
                self.error(PlanCode::Argument, &node.name, message);
                continue;
            }
            let Some(arg) = args.iter().find(|arg| arg.param == param.name) else {
                let message = format!("the parameter `{}` of {kernel} gets nothing", param.name);
                self.error(PlanCode::Argument, &node.name, message);
                continue;
            };
            match &arg.value {
                ArgumentValue::Buffer { buffer, prefix } => {
                    let len = self.buffer(*buffer).elements().unwrap_or(0);
                    if prefix.is_some_and(|prefix| prefix > len || param.access.is_writable()) {
                        let message = format!(
                            "`{}` of {kernel}: a prefix is of something that is only read, and no longer",
                            param.name
                        );
                        self.error(PlanCode::Argument, &node.name, message);
                        continue;
                    }
                    let touch = Touch {
                        node: index,
                        buffer: *buffer,
                        start: 0,
                        end: prefix.unwrap_or(len),
                        reads: param.access != Access::Output && param.access != Access::Scratch,
                        writes: param.access.is_writable(),
                        // What a kernel leaves in scratch memory means nothing to others.
                        filled: if param.access == Access::Scratch { 0 } else { len },
                        rows: None,
                        is_static: param.access == Access::Static,
                        settled: param.settled && signature.starts_early,
                        reads_early: signature.starts_early && param.is_read_early(),
                        writes_early: signature.starts_early && param.touches.written_early,
                        unfenced: signature.starts_early && param.touches.copied_unfenced,
                    };
                    self.buffer_argument(node, kernel, args, param, touch, touches);
                }
                ArgumentValue::Scalar(value) => self.scalar_argument(node, param, &[*value], None),
                ArgumentValue::Scalars(values) => {
                    self.scalar_argument(node, param, values, Some(self.plan.ranks));
                }
            }
        }
    }

    fn scalar_argument(
        &mut self,
        node: &Node,
        param: &ParamSpec,
        values: &[Scalar],
        ranks: Option<u32>,
    ) {
        let count = ranks.map_or(1, |r| r as usize);
        let fits = param.access == Access::Scalar
            && values.len() == count
            && values.iter().all(|v| v.dtype() == param.dtype);
        if !fits {
            let message = format!(
                "`{}` is {} of {}; it gets {} scalars of {}",
                param.name,
                param.access,
                param.dtype,
                values.len(),
                values.first().map_or(DType::I32, |v| v.dtype())
            );
            self.error(PlanCode::Argument, &node.name, message);
        }
    }

    fn buffer_argument(
        &mut self,
        node: &Node,
        kernel: &KernelKey,
        args: &[Argument],
        param: &'p ParamSpec,
        mut touch: Touch<'p>,
        touches: &mut Vec<Touch<'p>>,
    ) {
        let buffer = self.buffer(touch.buffer);
        let mut wanted = Some(1u64);
        for extent in &param.shape {
            let extent = match extent {
                ExtentSpec::Const(extent) => Some(*extent),
                // An extent is the same on every rank.
                ExtentSpec::Scalar(name) => integers(args, name)
                    .filter(|(least, greatest)| least == greatest)
                    .and_then(|(value, _)| u64::try_from(value).ok()),
            };
            wanted = wanted.zip(extent).and_then(|(n, e)| n.checked_mul(e));
        }
        let len = buffer.elements().unwrap_or(0);
        if param.access == Access::Scalar || buffer.dtype != param.dtype || wanted != Some(len) {
            let wanted = wanted.map_or("an unknown number of".to_owned(), |n| n.to_string());
            let message = format!(
                "`{}` of {kernel} is {} {wanted} elements of {}; `{}` has {len} of {}",
                param.name, param.access, param.dtype, buffer.name, buffer.dtype
            );
            self.error(PlanCode::Argument, &node.name, message);
            return;
        }
        let twice = args.iter().any(|other| {
            other.param != param.name
                && matches!(other.value, ArgumentValue::Buffer { buffer, .. } if buffer == touch.buffer)
        });
        if twice && touch.writes && len > 0 {
            let message =
                format!("`{}` is written and given to two parameters of {kernel}", buffer.name);
            self.error(PlanCode::Race, &node.name, message);
        }
        if let Some(rows) = &param.touches.rows {
            self.bound(node, args, param, rows, &mut touch);
        }
        touches.push(touch);
    }

    /// Leaves out of a touch what lies behind the rows that a scalar bounds.
    fn bound(
        &mut self,
        node: &Node,
        args: &[Argument],
        param: &ParamSpec,
        rows: &'p str,
        touch: &mut Touch<'p>,
    ) {
        let inner = param.shape.iter().skip(1).try_fold(1u64, |n, extent| match extent {
            ExtentSpec::Const(extent) => n.checked_mul(*extent),
            ExtentSpec::Scalar(_) => None,
        });
        let Some(((least, greatest), inner)) = integers(args, rows).zip(inner) else {
            let message = format!("the rows of `{}` are bounded by no known scalar", param.name);
            self.error(PlanCode::Argument, &node.name, message);
            return;
        };
        let end = |rows: i64| u64::try_from(rows).unwrap_or(0).saturating_mul(inner);
        touch.filled = touch.filled.min(end(least));
        touch.end = touch.end.min(end(greatest));
        touch.rows = Some(rows);
    }
}

fn is_summed(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
}
