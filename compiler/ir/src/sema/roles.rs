//! `role NAME: warps a..b elect one { … }` and `sync NAME;`

use kernel_dsl::ast::{self, Expr, ExprKind, Name, RangeEnd, SyncTarget};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::lower::Lower;
use super::operands::describe;
use super::report::{Outcome, Refused};
use super::scope::Entity;
use crate::kernel::{MAX_ROLES, Role, StmtKind};
use crate::target::Target;
use kernel_abi::DType;

/// What a kernel without roles is called at the ends of barriers.
const ALL: &str = "all";

impl<'a> Lower<'a> {
    /// The statements of a kernel. One without roles whose barriers name `all` is one role: all warps, from behind the last
    /// thing that is declared for them.
    pub(super) fn body(&mut self, kernel: &'a ast::Kernel) -> Outcome<()> {
        let stmts = kernel.body.stmts.as_slice();
        let has_role = stmts.iter().any(|stmt| matches!(stmt.kind, ast::StmtKind::Role(_)));
        if has_role || !stmts.iter().any(names_all) {
            self.statements(&kernel.body);
            return Ok(());
        }
        let begin = stmts.iter().rposition(is_for_all).map_or(0, |last| last + 1);
        let (before, rest) = stmts.split_at(begin);
        self.list(before);
        let role = self.kernel.roles.push(Role {
            name: ALL.to_owned(),
            first: 0,
            warps: self.kernel.launch.warps,
            elect: false,
            registers: None,
            span: kernel.header_span,
        });
        let outer = self.frame.enter_role();
        (self.role, self.whole) = (Some(role), Some(role));
        let body = self.block_of(|s| {
            s.frame.open();
            s.list(rest);
            s.frame.close();
        });
        self.role = None;
        self.frame.leave_role(outer);
        self.emit(StmtKind::Role { role, body }, kernel.header_span)
    }

    /// `role NAME: warps a..b elect one { … }`
    pub(super) fn role(&mut self, ast: &'a ast::Role, span: Span) -> Outcome<()> {
        if !self.is_top() || self.role.is_some() || !self.calls.is_empty() {
            return Err(self.error(
                Diagnostic::error(Code::E0150, "a role inside of something else")
                    .label(ast.header_span, "roles stand at the top of a kernel")
                    .help("put the loop or the choice into the role"),
            ));
        }
        let (first, warps) = self.role_warps(ast)?;
        if self.kernel.roles.iter().any(|role| role.name == ast.name.text) {
            return Err(self.error(
                Diagnostic::error(Code::E0202, format!("two roles `{}`", ast.name.text))
                    .label(ast.name.span, "the second one")
                    .help("choose another name"),
            ));
        }
        if self.kernel.roles.len() >= MAX_ROLES {
            return Err(self.error(
                Diagnostic::error(Code::E0503, format!("more than {MAX_ROLES} roles"))
                    .label(ast.header_span, "each takes one of the 15 named barriers of a CTA"),
            ));
        }
        let registers = match &ast.registers {
            Some(registers) => Some(self.budget(registers)?),
            None => None,
        };
        let role = self.kernel.roles.push(Role {
            name: ast.name.text.clone(),
            first,
            warps,
            elect: ast.elect_one,
            registers,
            span: ast.header_span,
        });
        let outer = self.frame.enter_role();
        self.role = Some(role);
        let body = self.block_of(|s| s.block(&ast.body));
        self.role = None;
        self.frame.leave_role(outer);
        self.emit(StmtKind::Role { role, body }, span)
    }

    /// `registers n`
    fn budget(&mut self, e: &'a Expr) -> Outcome<u32> {
        let registers = self.const_int(e, "a number of registers")?;
        let fits = u32::try_from(registers).ok().filter(|n| (24..=240).contains(n) && n % 8 == 0);
        fits.ok_or_else(|| {
            self.error(
                Diagnostic::error(Code::E0155, format!("a budget of {registers} registers"))
                    .label(e.span, "a multiple of 8 from 24 to 240"),
            )
        })
    }

    /// First warp and number of warps.
    fn role_warps(&mut self, ast: &'a ast::Role) -> Outcome<(u32, u32)> {
        let ExprKind::Range(range) = &ast.warps.kind else { return Err(Refused) };
        let most = i64::from(Target::ALL[0].info().max_warps);
        let first = self.const_extent(&range.start, "the first warp", 0, most)?;
        let (end, extra, is_length) = match &range.end {
            RangeEnd::Exclusive(end) => (end, 0, false),
            RangeEnd::Inclusive(end) => (end, 1, false),
            RangeEnd::Length(end) => (end, 0, true),
        };
        let end = self.const_int(end, "the end of the warps")?.saturating_add(extra);
        let warps = if is_length { end } else { end.saturating_sub(i64::from(first)) };
        let warps = u32::try_from(warps).ok().filter(|&n| n > 0 && i64::from(n) <= most);
        warps.map(|warps| (first, warps)).ok_or_else(|| {
            let message = format!("`{}` has no warps", ast.name.text);
            self.error(
                Diagnostic::error(Code::E0150, message)
                    .label(ast.warps.span, format!("at least 1 and at most {most}"))
                    .help("write `warps FIRST..END`"),
            )
        })
    }

    /// Warps that run the statement at hand.
    pub(super) fn warps(&self) -> u32 {
        self.role.map_or(self.kernel.launch.warps, |role| self.kernel.roles[role].warps)
    }

    /// The role at hand, where it is one thread.
    pub(super) fn elected(&self) -> Option<&Role> {
        self.role.map(|role| &self.kernel.roles[role]).filter(|role| role.elect)
    }

    /// `sync;`, `sync ROLE;`, `sync cluster;`
    pub(super) fn sync(&mut self, target: &'a SyncTarget, span: Span) -> Outcome<()> {
        match (target, self.role) {
            (SyncTarget::All, None) => self.emit(StmtKind::Sync, span),
            (SyncTarget::Cluster, None) => self.emit(StmtKind::SyncCluster, span),
            (SyncTarget::All, Some(role)) if self.whole == Some(role) => {
                self.emit(StmtKind::SyncRole, span)
            }
            (SyncTarget::Cluster, Some(role)) if self.whole == Some(role) => {
                Err(self.not_built(span, "`sync cluster` where barriers are those of all warps"))
            }
            (SyncTarget::Role(name), Some(role)) if self.kernel.roles[role].name == name.text => {
                if self.elected().is_some() {
                    return Err(self.error(
                        Diagnostic::error(Code::E0151, "`sync` of one thread")
                            .label(span, format!("`{}` says `elect one`", name.text))
                            .help("remove it"),
                    ));
                }
                self.emit(StmtKind::SyncRole, span)
            }
            (SyncTarget::Role(name), _) => Err(self.foreign_sync(name)),
            (SyncTarget::All | SyncTarget::Cluster, Some(role)) => {
                let role = &self.kernel.roles[role];
                let what = match target {
                    SyncTarget::Cluster => "`sync cluster`",
                    SyncTarget::All | SyncTarget::Role(_) => "`sync`",
                };
                let diagnostic = Diagnostic::error(Code::E0151, format!("{what} inside of a role"))
                    .label(span, "threads of other roles never come here")
                    .secondary(role.span, "this role")
                    .help(format!("write `sync {};`", role.name));
                Err(self.error(diagnostic))
            }
        }
    }

    fn foreign_sync(&mut self, name: &Name) -> Refused {
        let diagnostic =
            Diagnostic::error(Code::E0151, format!("`sync {}` outside of that role", name.text))
                .label(name.span, "only the threads of the role itself meet by it");
        let help = match self.role {
            Some(role) => format!("write `sync {};`", self.kernel.roles[role].name),
            None => "write `sync;`".to_owned(),
        };
        self.error(diagnostic.help(help))
    }

    /// Refuses a tile of the whole CTA in a role.
    pub(super) fn own_tile(&mut self, name: &str, span: Span) -> Outcome<()> {
        let Some(role) = self.role else { return Ok(()) };
        let Some(named) = self.frame.lookup_outside(name) else { return Ok(()) };
        let (defined, is_tile) = match &named.entity {
            Entity::Tile(tile) => (named.span, !tile.shape.is_empty()),
            Entity::Frag(_) => (named.span, true),
            Entity::Const(_)
            | Entity::Range(_)
            | Entity::Buffer(_)
            | Entity::Atom(_)
            | Entity::Refused => {
                return Ok(());
            }
        };
        if !is_tile {
            return Ok(());
        }
        let role = &self.kernel.roles[role];
        let diagnostic = Diagnostic::error(
            Code::E0152,
            format!("`{name}` lies in the registers of other threads than `{}`", role.name),
        )
        .label(span, "used in a role")
        .secondary(defined, "made by all threads of the CTA")
        .help("make it in the role, or hand it over through shared memory");
        Err(self.error(diagnostic))
    }

    /// Refuses a tile in a role of one thread.
    pub(super) fn one_thread(&mut self, dtype: DType, shape: &[u32], span: Span) -> Outcome<()> {
        let elements = shape.iter().fold(1_u64, |n, &e| n.saturating_mul(u64::from(e)));
        let Some(role) = self.elected().filter(|_| elements > 1) else { return Ok(()) };
        let diagnostic = Diagnostic::error(
            Code::E0150,
            format!("{} in a role of one thread", describe(dtype, shape)),
        )
        .label(span, "one thread has scalars alone")
        .secondary(role.span, "this role says `elect one`")
        .help("remove `elect one`");
        Err(self.error(diagnostic))
    }
}

/// True for a barrier or a pipeline with all warps at an end.
fn names_all(stmt: &ast::Stmt) -> bool {
    let ends = |edge: &ast::Edge| edge.from.iter().chain(&edge.to).any(|name| name.text == ALL);
    match &stmt.kind {
        ast::StmtKind::Barrier(barrier) => ends(&barrier.edge),
        ast::StmtKind::Pipeline(pipeline) => ends(&pipeline.full) || ends(&pipeline.empty),
        _ => false,
    }
}

/// True for what is declared for all threads of the CTA.
fn is_for_all(stmt: &ast::Stmt) -> bool {
    match &stmt.kind {
        ast::StmtKind::Barrier(_) | ast::StmtKind::Pipeline(_) => true,
        ast::StmtKind::Tile(tile) => tile.space != ast::TileSpace::Frag,
        _ => false,
    }
}
