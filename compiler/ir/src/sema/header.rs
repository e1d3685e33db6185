//! Headers of kernels: constants, `where`, `launch`, buffers.

use kernel_abi::Access;
use kernel_dsl::ast::{
    self, Buffer, ConstParam, Dim, Domain, DomainKind, Expr, ExprKind, LaunchKey, Qualifier,
    RangeEnd, Space,
};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::const_int;
use super::check::is_packed;
use super::constants::{Const, ConstValue};
use super::limits::{MAX_CLUSTER, MAX_GRID_X, MAX_GRID_YZ, MAX_MIN_CTAS, MAX_WARPS_TOGETHER};
use super::lower::{Lower, Shared};
use super::not_built;
use super::operands::{Operand, Tile};
use super::ranks;
use super::report::{Outcome, Refused};
use super::scope::{self, Entity};
use super::stored;
use super::suggest::closest;
use super::template::Bindings;
use crate::kernel::{
    Contract, ContractBound, Distinct, Extent, Launch, Param, ParamId, Pdl, ViewAxis, ViewDigit,
    Words,
};

impl<'a> Lower<'a> {
    /// Gives each `const` parameter its value; later ones may use earlier ones.
    pub(super) fn bind_consts(
        &mut self,
        params: &'a [ConstParam],
        bindings: &Bindings,
        kernel: Span,
    ) -> Outcome<()> {
        let mut outcome = Ok(());
        for (name, value) in bindings.iter() {
            if params.iter().any(|param| param.name.text == name) {
                continue;
            }
            let mut diagnostic =
                Diagnostic::error(Code::E0208, format!("there is no parameter `{name}` to bind"))
                    .label(kernel, format!("`{name}` = {value} is given for this kernel"));
            if let Some(near) = closest(name, params.iter().map(|p| p.name.text.as_str())) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            }
            outcome = Err(self.error(diagnostic));
        }
        for param in params {
            let value = match (bindings.get(&param.name.text), &param.default) {
                (Some(value), _) => Ok((Const { value, dtype: None }, param.name.span)),
                (None, Some(default)) => self.constant(default).map(|value| (value, default.span)),
                (None, None) => {
                    let name = &param.name.text;
                    Err(self.error(
                        Diagnostic::error(Code::E0208, format!("`{name}` has no value"))
                            .label(param.name.span, "it has no default, and none is given")
                            .help(format!("give one: `--bind {name}=…`")),
                    ))
                }
            };
            let defined =
                value.and_then(|(value, at)| Ok((self.fit_const(param, value, at)?, value)));
            match defined {
                Ok((value, _)) => {
                    let number = match value.value {
                        ConstValue::Int(v) => v,
                        ConstValue::Bool(v) => i64::from(v),
                        ConstValue::Float(_) => 0,
                    };
                    self.kernel.bindings.push((param.name.text.clone(), number));
                    self.frame.define(&param.name, Entity::Const(value));
                }
                Err(refused) => {
                    self.frame.define(&param.name, Entity::Refused);
                    outcome = Err(refused);
                }
            }
        }
        outcome
    }

    /// Whether a value is one of a domain.
    pub(super) fn in_domain(&mut self, domain: &'a Domain, value: Const) -> Outcome<bool> {
        match &domain.kind {
            DomainKind::Set(values) => {
                for e in values {
                    if self.constant(e)?.value == value.value {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            DomainKind::Range(range) => {
                let (lo, hi) = self.interval(range)?;
                let ConstValue::Int(value) = value.value else { return Ok(false) };
                let Some(hi) = const_int(&hi) else { return Err(self.run_time_bound(range)) };
                Ok(lo <= value && value < hi)
            }
        }
    }

    /// The values of a domain, for `tune`.
    pub(super) fn domain_values(&mut self, domain: &'a Domain) -> Outcome<Vec<ConstValue>> {
        match &domain.kind {
            DomainKind::Set(values) => values.iter().map(|e| Ok(self.constant(e)?.value)).collect(),
            DomainKind::Range(range) => {
                let (lo, hi) = self.interval(range)?;
                let hi = const_int(&hi).ok_or(Refused)?;
                // more points than anyone tunes are no list
                Ok((lo..hi).take(1024).map(ConstValue::Int).collect())
            }
        }
    }

    /// `a..b` or `a..=b` as a least value and an exclusive bound.
    fn interval(&mut self, e: &'a Expr) -> Outcome<(i64, Operand)> {
        let ExprKind::Range(range) = &e.kind else {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "an interval is a range")
                    .label(e.span, "write `a..b`"),
            ));
        };
        let lo = self.const_int(&range.start, "the least value")?;
        let hi = match &range.end {
            RangeEnd::Exclusive(end) => self.expr(end)?,
            RangeEnd::Inclusive(end) => self.inclusive(end)?,
            RangeEnd::Length(length) => {
                let length = self.expr(length)?;
                let lo = (Operand::Const(Const::int(lo)), range.start.span);
                self.infix(ast::BinaryOp::Add, lo, (length, range.start.span), e.span)?
            }
        };
        Ok((lo, hi))
    }

    fn run_time_bound(&mut self, e: &'a Expr) -> Refused {
        self.error(
            Diagnostic::error(Code::E0205, "the bound of a domain is constant")
                .label(e.span, "known at run time only"),
        )
    }

    /// All `where` clauses hold; the finding shows the values.
    pub(super) fn wheres(&mut self, kernel: &'a ast::Kernel) -> Outcome<()> {
        let mut outcome = Ok(());
        for clause in kernel.wheres.iter().flat_map(|clause| &clause.value) {
            match self.constant(clause) {
                Ok(Const { value: ConstValue::Bool(true), .. }) => {}
                Ok(Const { value: ConstValue::Bool(false), .. }) => {
                    outcome = Err(self.failed_where(kernel, clause));
                }
                Ok(other) => {
                    outcome = Err(self.error(
                        Diagnostic::error(Code::E0203, "a `where` clause is of type bool")
                            .label(clause.span, format!("this is {}", other.type_name())),
                    ));
                }
                Err(refused) => outcome = Err(refused),
            }
        }
        outcome
    }

    fn failed_where(&mut self, kernel: &'a ast::Kernel, clause: &'a Expr) -> Refused {
        let mut shown = "this does not hold".to_owned();
        if let ExprKind::Binary(op, a, b) = &clause.kind
            && op.is_comparison()
            && let (Ok(a), Ok(b)) = (self.constant(a), self.constant(b))
        {
            shown = format!("{} {} {} does not hold", a.value, op.symbol(), b.value);
        }
        let mut names = Vec::new();
        mentioned(clause, &mut names);
        let values: Vec<String> = self
            .kernel
            .bindings
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()))
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let mut diagnostic =
            Diagnostic::error(Code::E0209, "a `where` clause does not hold for these bindings")
                .label(clause.span, shown)
                .secondary(kernel.name.span, "this kernel");
        if !values.is_empty() {
            diagnostic = diagnostic.note(format!("with {}", values.join(", ")));
        }
        self.error(diagnostic)
    }

    pub(super) fn launch(&mut self, launch: &'a ast::Launch, header: Span) -> Outcome<()> {
        for entry in &launch.entries {
            if let Some(what) = not_built::launch(entry.key) {
                return Err(self.not_built(entry.span, what));
            }
        }
        let (Some(grid), Some(warps)) = (launch.get(LaunchKey::Grid), launch.get(LaunchKey::Warps))
        else {
            return Err(self.error(missing_launch(LaunchKey::Grid, header)));
        };
        let grid_span = grid.span;
        let grid = self.extents("grid", grid);
        let cluster =
            launch.get(LaunchKey::Cluster).map(|e| Ok((self.extents("cluster", e)?, e.span)));
        let most = i64::from(self.target.info().max_warps);
        let warps = self.limited(warps, "the number of warps", most);
        let together = warps.as_ref().map_or(MAX_MIN_CTAS, |&warps| {
            (MAX_WARPS_TOGETHER / i64::from(warps.max(1))).min(MAX_MIN_CTAS)
        });
        let min_ctas =
            launch.get(LaunchKey::MinCtas).map(|e| self.limited(e, "`min_ctas`", together));
        let pdl = match launch.get(LaunchKey::Pdl) {
            None => Ok(Pdl::None),
            Some(e) => pdl(e).ok_or_else(|| self.error(pdl_mistake(e.span))),
        };
        let grid = grid?;
        let cluster = match cluster.transpose()? {
            None => [1, 1, 1],
            Some((cluster, at)) => self.cluster(cluster, at, grid, grid_span)?,
        };
        // the sizes of tiles are judged against the number of warps
        let min_ctas = min_ctas.transpose()?;
        let (world, resident) = self.world(launch)?;
        self.kernel.launch =
            Launch { grid, cluster, warps: warps?, pdl: pdl?, min_ctas, world, resident };
        Ok(())
    }

    /// A cluster has few CTAs, and the grid is made of whole clusters.
    fn cluster(
        &mut self,
        cluster: [u32; 3],
        at: Span,
        grid: [u32; 3],
        grid_span: Span,
    ) -> Outcome<[u32; 3]> {
        let size = cluster.iter().fold(1_u32, |n, &extent| n.saturating_mul(extent));
        if size > MAX_CLUSTER {
            let message =
                format!("a cluster of {size} CTAs, at most {MAX_CLUSTER} on {}", self.target);
            return Err(self
                .error(Diagnostic::error(Code::E0503, message).label(at, format!("{size} CTAs"))));
        }
        let uneven = (0..3).find(|&axis| !grid[axis].is_multiple_of(cluster[axis]));
        if let Some(axis) = uneven {
            let (of, by, name) = (grid[axis], cluster[axis], ["x", "y", "z"][axis]);
            return Err(self.error(
                Diagnostic::error(Code::E0215, "a grid is made of whole clusters")
                    .label(at, format!("{by} CTAs along {name}"))
                    .secondary(grid_span, format!("{of} CTAs along {name}"))
                    .help(format!("{by} must divide {of}")),
            ));
        }
        Ok(cluster)
    }

    /// A positive number of something of which a target has at most `most`.
    fn limited(&mut self, e: &'a Expr, what: &str, most: i64) -> Outcome<u32> {
        let value = self.const_int(e, what)?;
        let (code, limit) = match value {
            v if v < 1 => (Code::E0215, "at least 1".to_owned()),
            v if v > most => (Code::E0503, format!("at most {most} on {}", self.target)),
            v => return u32::try_from(v).map_err(|_| Refused),
        };
        Err(self.error(
            Diagnostic::error(code, format!("{what} is {value}, it must be {limit}"))
                .label(e.span, format!("this is {value}")),
        ))
    }

    /// The extents of a grid or a cluster, as a number or a tuple.
    fn extents(&mut self, what: &str, e: &'a Expr) -> Outcome<[u32; 3]> {
        let parts: Vec<&'a Expr> = match &e.kind {
            ExprKind::Tuple(parts) => parts.iter().collect(),
            _ => vec![e],
        };
        if parts.len() > 3 {
            return Err(self.error(
                Diagnostic::error(Code::E0215, format!("a {what} has one to three extents"))
                    .label(e.span, format!("{} extents", parts.len())),
            ));
        }
        let mut extents = [1_u32; 3];
        let names = ["x", "y", "z"].map(|axis| format!("the {what} along {axis}"));
        let limits = [MAX_GRID_X, MAX_GRID_YZ, MAX_GRID_YZ];
        let mut outcome = Ok(());
        for (axis, part) in parts.into_iter().enumerate() {
            match self.limited(part, &names[axis], limits[axis]) {
                Ok(extent) => extents[axis] = extent,
                Err(refused) => outcome = Err(refused),
            }
        }
        outcome.map(|()| extents)
    }

    /// Declares the parameters: scalars first, since extents and contracts may name them.
    pub(super) fn params(&mut self, buffers: &'a [Buffer]) -> Outcome<()> {
        let mut outcome = Ok(());
        let ids: Vec<Option<ParamId>> = buffers
            .iter()
            .map(|buffer| match self.declare_param(buffer) {
                Ok(id) => Some(id),
                Err(refused) => {
                    outcome = Err(refused);
                    self.frame.define(&buffer.name, Entity::Refused);
                    None
                }
            })
            .collect();
        for (buffer, id) in buffers.iter().zip(ids) {
            let Some(id) = id else { continue };
            if let Err(refused) = self.finish_param(buffer, id) {
                outcome = Err(refused);
                self.frame.define(&buffer.name, Entity::Refused);
            }
        }
        // the extents of all buffers are known
        let scaled = buffers.iter().filter(|buffer| outcome.is_ok() && buffer.scaled_by.is_some());
        for buffer in scaled.collect::<Vec<_>>() {
            if let Err(refused) = self.scales(buffer) {
                outcome = Err(refused);
                self.frame.define(&buffer.name, Entity::Refused);
            }
        }
        for buffer in buffers.iter().filter(|buffer| buffer.of.is_some()) {
            if outcome.is_ok()
                && let Err(refused) = self.window(buffer)
            {
                outcome = Err(refused);
                self.frame.define(&buffer.name, Entity::Refused);
            }
        }
        outcome
    }

    fn declare_param(&mut self, buffer: &'a Buffer) -> Outcome<ParamId> {
        if let Some((span, what)) = not_built::buffer(buffer).into_iter().next() {
            return Err(self.not_built(span, what));
        }
        if let Some((message, help)) = buffer_mistake(buffer) {
            return Err(self.error(
                Diagnostic::error(Code::E0215, message).label(buffer.access.span, "").help(help),
            ));
        }
        if buffer.access.qualifier == Qualifier::Peer && self.kernel.launch.world.is_none() {
            return Err(self.error(ranks::without_world(&buffer.name.text, buffer.access.span)));
        }
        let dtype = self.dtype(&buffer.ty.dtype)?;
        let access = access(buffer).ok_or(Refused)?;
        if access == Access::Scalar && is_packed(dtype) {
            return Err(self.not_built(buffer.ty.dtype.span, &format!("scalars of {dtype}")));
        }
        let id = self.kernel.params.push(Param {
            name: buffer.name.text.clone(),
            access,
            settled: buffer.access.settled,
            words: match (buffer.access.counter, buffer.access.epoch) {
                (true, _) => Some(Words::Counter),
                (false, true) => Some(Words::Epoch),
                (false, false) if buffer.space == Some(Space::SymFlag) => Some(Words::Flag),
                (false, false) => None,
            },
            dtype,
            shape: Vec::new(),
            stored: None,
            scaled: None,
            of: None,
            contract: None,
            span: buffer.name.span,
        });
        if access == Access::Scalar {
            let value = self.shared(Shared::Param(id), dtype, buffer.name.span)?;
            self.name_value(value, &buffer.name.text);
            let tile = Tile::new(value, dtype, Vec::new());
            self.frame.define(&buffer.name, Entity::Tile(tile));
        }
        Ok(id)
    }

    fn finish_param(&mut self, buffer: &'a Buffer, id: ParamId) -> Outcome<()> {
        let mut shape = Vec::with_capacity(buffer.ty.shape.len());
        for (at, dim) in buffer.ty.shape.iter().enumerate() {
            shape.push(self.extent(dim, at)?);
        }
        if matches!(self.kernel.params[id].access, Access::Peer | Access::Multicast) {
            let is_data = self.kernel.params[id].is_inbox();
            if !is_data && shape.iter().any(|extent| matches!(extent, Extent::Scalar(_))) {
                let what = "run-time extents of flags and of multicast addresses";
                return Err(self.not_built(buffer.ty.span, what));
            }
            if !self.kernel.params[id].is_flag() {
                shape = ranks::slots(self, buffer, shape)?;
            }
        }
        if self.kernel.params[id].access != Access::Scalar {
            let axes = match &buffer.stored {
                Some(layout) => {
                    let param = &self.kernel.params[id];
                    let (access, declared) = (param.access, param.span);
                    let layout = self.stored(layout, &shape, access, declared)?;
                    let axes = stored::axes(&layout, &shape).ok_or(Refused)?;
                    self.kernel.params[id].stored = Some(layout);
                    axes
                }
                None => match shape.as_slice() {
                    [slots, rows @ Extent::Scalar(_), inner @ ..] => {
                        self.slots_inside(*slots, *rows, inner, buffer.ty.span)?
                    }
                    _ => self.row_major(&shape, buffer.ty.span)?,
                },
            };
            let entity = Entity::Buffer(scope::Buffer::new(scope::Memory::Param(id), axes.into()));
            self.frame.define(&buffer.name, entity);
        }
        self.kernel.params[id].shape = shape;
        if let Some(contract) = &buffer.contract {
            let contract = self.contract_of(buffer, contract)?;
            self.kernel.params[id].contract = Some(contract);
        }
        Ok(())
    }

    fn extent(&mut self, dim: &'a Dim, at: usize) -> Outcome<Extent> {
        let e = match dim {
            Dim::Extent(e) => e,
            Dim::Any(span) | Dim::Rest(ast::Name { span, .. }) => {
                return Err(self.error(
                    Diagnostic::error(Code::E0205, "an extent that is not stated")
                        .label(*span, "only parameters of a `fn` take any extent")
                        .help("write the extent"),
                ));
            }
        };
        if let Some(param) = self.scalar_param(e) {
            let span = e.span;
            let dtype = self.kernel.params[param].dtype;
            if at > 0 {
                return Err(self.error(
                    Diagnostic::error(
                        Code::E0205,
                        "only the outermost extent is known at run time",
                    )
                    .label(span, format!("axis {at}"))
                    .help("strides are constant; make this extent a `const`"),
                ));
            }
            if dtype != kernel_abi::DType::I32 {
                let place = self.kernel.params[param].span;
                return Err(self.error(
                    Diagnostic::error(Code::E0203, "an extent is of type i32")
                        .label(span, format!("this is {dtype}"))
                        .secondary(place, "declared here"),
                ));
            }
            return Ok(Extent::Scalar(param));
        }
        self.const_extent(e, "an extent", 0, i64::from(i32::MAX)).map(Extent::Const)
    }

    /// The `scalar` parameter that an expression is nothing but a name of.
    fn scalar_param(&self, e: &Expr) -> Option<ParamId> {
        let ExprKind::Ref(reference) = &e.kind else { return None };
        let name = reference.path.single()?;
        let (id, _) = self
            .kernel
            .params
            .iter_enumerated()
            .find(|(_, p)| p.name == name.text && p.access == Access::Scalar)?;
        Some(id)
    }

    /// The axes of memory of ranks with as many rows as a scalar says: strides are constant, so the slots of the ring lie
    /// side by side within each row.
    fn slots_inside(
        &mut self,
        slots: Extent,
        rows: Extent,
        inner: &[Extent],
        span: Span,
    ) -> Outcome<Vec<ViewAxis>> {
        let in_memory: Vec<Extent> =
            [rows, slots].into_iter().chain(inner.iter().copied()).collect();
        let mut axes = self.row_major(&in_memory, span)?;
        axes.swap(0, 1);
        Ok(axes)
    }

    /// The axes of a buffer in memory order.
    fn row_major(&mut self, shape: &[Extent], span: Span) -> Outcome<Vec<ViewAxis>> {
        let mut stride = 1_i64;
        let mut axes = Vec::with_capacity(shape.len());
        for &extent in shape.iter().rev() {
            let (digit, next) = match extent {
                Extent::Const(n) => (n.max(1), stride.checked_mul(i64::from(n.max(1)))),
                // the slowest digit is not split, so any bound does
                Extent::Scalar(_) => (u32::MAX, Some(stride)),
            };
            axes.push(ViewAxis { extent, digits: vec![ViewDigit { extent: digit, stride }] });
            stride = next.ok_or_else(|| {
                self.error(
                    Diagnostic::error(Code::E0219, "a buffer is too large")
                        .label(span, "more elements than 64 bits count"),
                )
            })?;
        }
        axes.reverse();
        Ok(axes)
    }

    fn contract_of(
        &mut self,
        buffer: &'a Buffer,
        contract: &'a ast::Contract,
    ) -> Outcome<Contract> {
        let dtype = self.dtype(&buffer.ty.dtype)?;
        if !dtype.is_int() {
            return Err(self.error(
                Diagnostic::error(Code::E0403, "a contract on values that are no integers")
                    .label(contract.span, "an interval of integers")
                    .secondary(buffer.ty.span, format!("{dtype}")),
            ));
        }
        let DomainKind::Range(range) = &contract.domain.kind else {
            return Err(self.error(
                Diagnostic::error(Code::E0403, "a contract is an interval")
                    .label(contract.domain.span, "a set")
                    .help("write `in a..b`"),
            ));
        };
        let (lo, hi) = self.contract_interval(range)?;
        if let ContractBound::Const(hi) = hi
            && lo >= hi
        {
            return Err(self.error(
                Diagnostic::error(Code::E0403, "no value satisfies this contract")
                    .label(range.span, format!("nothing is at least {lo} and below {hi}")),
            ));
        }
        let except = match &contract.except {
            Some(e) => Some(self.const_int(e, "the exception")?),
            None => None,
        };
        let distinct = contract.distinct.then_some(Distinct { except });
        Ok(Contract { lo, hi, distinct })
    }

    /// An interval whose bound is a constant, or a `scalar` with `..` or `..=`.
    fn contract_interval(&mut self, e: &'a Expr) -> Outcome<(i64, ContractBound)> {
        if let ExprKind::Range(range) = &e.kind {
            let scalar = match &range.end {
                RangeEnd::Exclusive(end) => self.scalar_param(end).map(|param| (param, 0)),
                RangeEnd::Inclusive(end) => self.scalar_param(end).map(|param| (param, 1)),
                RangeEnd::Length(_) => None,
            };
            if let Some((param, offset)) = scalar {
                let lo = self.const_int(&range.start, "the least value")?;
                return Ok((lo, ContractBound::Scalar(param, offset)));
            }
        }
        let (lo, hi) = self.interval(e)?;
        match const_int(&hi) {
            Some(hi) => Ok((lo, ContractBound::Const(hi))),
            None => Err(self.error(
                Diagnostic::error(Code::E0205, "the bound of a contract")
                    .label(e.span, "a constant, or the name of a `scalar` parameter, goes here"),
            )),
        }
    }
}

/// Names that occur in an expression of operators and names.
fn mentioned<'a>(e: &'a Expr, names: &mut Vec<&'a str>) {
    let mut open = vec![e];
    while let Some(e) = open.pop() {
        match &e.kind {
            ExprKind::Ref(reference) => {
                names.extend(reference.path.single().map(|n| n.text.as_str()));
            }
            ExprKind::Unary(_, x) => open.push(x),
            ExprKind::Binary(_, a, b) => open.extend([&**a, &**b]),
            ExprKind::Conditional(c, a, b) => open.extend([&**c, &**a, &**b]),
            ExprKind::Call(call) => open.extend(call.args.iter().map(|arg| &arg.value)),
            _ => {}
        }
    }
}

/// Whether a text can be a symbol of a cubin.
pub(super) fn is_symbol(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.len() <= 255
}

/// `none`, `producer`, `consumer`, `both`.
pub(super) fn pdl(e: &Expr) -> Option<Pdl> {
    let ExprKind::Ref(reference) = &e.kind else { return None };
    match reference.path.single()?.text.as_str() {
        "none" => Some(Pdl::None),
        "producer" => Some(Pdl::Producer),
        "consumer" => Some(Pdl::Consumer),
        "both" => Some(Pdl::Both),
        _ => None,
    }
}

pub(super) fn pdl_mistake(span: Span) -> Diagnostic {
    Diagnostic::error(Code::E0215, "an unknown kind of programmatic launch")
        .label(span, "`none`, `producer`, `consumer` or `both` goes here")
}

pub(super) fn missing_launch(key: LaunchKey, header: Span) -> Diagnostic {
    let word = key.word();
    Diagnostic::error(Code::E0215, format!("`launch` without `{word}`"))
        .label(header, "the header of this kernel")
        .help("write `launch { grid: …, warps: … }`")
}

/// A qualifier that does not go with the rest of the declaration, and what to write.
pub(super) fn buffer_mistake(buffer: &Buffer) -> Option<(String, &'static str)> {
    let qualifier = buffer.access.qualifier;
    let name = &buffer.name.text;
    let access = &buffer.access;
    if let Some(mistake) = ranks::buffer_mistake(buffer) {
        return Some(mistake);
    }
    if access.counter || access.epoch {
        let word = if access.counter { "counter" } else { "epoch" };
        let plain = qualifier == Qualifier::Inout
            && !access.settled
            && !(access.counter && access.epoch)
            && buffer.ty.dtype.text == "u32"
            && buffer.ty.shape.len() == 1
            && buffer.contract.is_none();
        return (!plain).then(|| {
            let form = "write `inout counter c : gmem u32[N]` or `inout epoch e : gmem u32[N]`";
            (format!("the {word} `{name}` is no list of words"), form)
        });
    }
    match qualifier {
        Qualifier::Writable => Some((
            format!("`{name}` does not say who writes it"),
            "write `output`, `inout` or `scratch`",
        )),
        Qualifier::Scalar if !buffer.ty.shape.is_empty() => {
            Some((format!("the scalar `{name}` has axes"), "write `input` for a buffer"))
        }
        Qualifier::Scalar if buffer.space.is_some() => Some((
            format!("the scalar `{name}` lies in memory"),
            "a scalar is passed by value: `scalar n : i32`",
        )),
        Qualifier::Scalar => None,
        _ if buffer.ty.shape.is_empty() => {
            Some((format!("the buffer `{name}` has no axes"), "write the extents: `gmem f32[1]`"))
        }
        Qualifier::Input | Qualifier::Inout => None,
        Qualifier::Static | Qualifier::Output | Qualifier::Scratch | Qualifier::Peer => {
            let settled = buffer.access.settled;
            settled.then(|| {
                (
                    format!("`settled {}` has no meaning", qualifier.word()),
                    "only `input` and `inout` can be settled",
                )
            })
        }
    }
}

/// Who may write a buffer; `None` for what only functions state.
fn access(buffer: &Buffer) -> Option<Access> {
    match buffer.access.qualifier {
        Qualifier::Static => Some(Access::Static),
        Qualifier::Input => Some(Access::Input),
        Qualifier::Output => Some(Access::Output),
        Qualifier::Inout => Some(Access::Inout),
        Qualifier::Scratch => Some(Access::Scratch),
        Qualifier::Peer if buffer.space == Some(Space::SymMc) => Some(Access::Multicast),
        Qualifier::Peer => Some(Access::Peer),
        Qualifier::Scalar => Some(Access::Scalar),
        Qualifier::Writable => None,
    }
}
