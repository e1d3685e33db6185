//! Errors of a run: the fault of the kernel's author, or of whoever launched it.

use std::fmt;

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// Read of memory, or of a tile, that nothing wrote.
    Poison,
    /// Access past a buffer.
    OutOfBounds,
    /// A value breaks the contract of its parameter.
    Contract,
    /// `assert` failed.
    Assert,
    /// Integer division by zero.
    DivisionByZero,
    /// An argument that does not fit its parameter.
    Argument,
    /// Two stores to one address.
    StoreConflict,
    /// Store to a buffer that may not be written.
    ReadOnly,
    /// More statements than the options allow.
    StepLimit,
    /// Two threads touch shared memory without a barrier in between (device level).
    SharedRace,
    /// A vector access that is not aligned to its size (device level).
    Misaligned,
    /// Threads that part ways at a barrier, a shuffle or a loop (device level).
    NotUniform,
    /// A CTA reads what another CTA of the launch writes.
    GridRace,
    /// All that run wait for each other.
    Deadlock,
    /// Two ranks touch an element, and no signal and wait order the two.
    RankRace,
    /// Two CTAs of a cluster touch shared memory without `sync cluster` in between.
    ClusterRace,
    /// Shared memory of a CTA that has not started, or has ended (device level).
    Absent,
    /// Two roles touch shared memory, and nothing orders them.
    RoleRace,
    /// A barrier is waited for, or arrived at, in a round that it does not have now.
    Phase,
    /// Two launches touch an element, and no `grid_wait` orders the two.
    LaunchRace,
    /// The axioms of the memory model order two accesses in no direction (device level).
    ModelRace,
}

impl ErrorKind {
    /// The diagnostic code.
    pub fn code(self) -> Code {
        match self {
            ErrorKind::Poison => Code::E0701,
            ErrorKind::OutOfBounds => Code::E0702,
            ErrorKind::Contract => Code::E0703,
            ErrorKind::Assert => Code::E0704,
            ErrorKind::DivisionByZero => Code::E0705,
            ErrorKind::Argument => Code::E0706,
            ErrorKind::StoreConflict => Code::E0707,
            ErrorKind::ReadOnly => Code::E0708,
            ErrorKind::StepLimit => Code::E0709,
            ErrorKind::SharedRace => Code::E0710,
            ErrorKind::Misaligned => Code::E0711,
            ErrorKind::NotUniform => Code::E0712,
            ErrorKind::GridRace => Code::E0713,
            ErrorKind::Deadlock => Code::E0714,
            ErrorKind::RankRace => Code::E0717,
            ErrorKind::ClusterRace => Code::E0715,
            ErrorKind::Absent => Code::E0716,
            ErrorKind::RoleRace => Code::E0718,
            ErrorKind::Phase => Code::E0719,
            ErrorKind::LaunchRace => Code::E0720,
            ErrorKind::ModelRace => Code::E0721,
        }
    }
}

/// An error of a run, with its place in the source and in the grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmuError {
    /// What went wrong.
    pub kind: ErrorKind,
    /// One line, lower case, without a full stop.
    pub message: String,
    /// Where it stands in the `.tile` file.
    pub span: Span,
    /// Where it happened.
    pub detail: Box<ErrorDetail>,
}

/// Where an error happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorDetail {
    /// The CTA; none for errors at launch.
    pub cta: Option<[u32; 3]>,
    /// The rank, in a kernel over several.
    pub rank: Option<u32>,
    /// The launch, where several overlap.
    pub launch: Option<u32>,
    /// The thread of the CTA (device level).
    pub thread: Option<u32>,
    /// Coordinates of the element in its buffer or tile; empty where there is none.
    pub coordinate: Vec<i64>,
    /// A second place that explains the error, and what is there.
    pub other: Option<(Span, String)>,
    /// What to write instead.
    pub help: Option<String>,
}

impl EmuError {
    /// An error with nothing but a message and a place.
    pub(crate) fn new(kind: ErrorKind, span: Span, message: impl Into<String>) -> EmuError {
        EmuError { kind, message: message.into(), span, detail: Box::default() }
    }

    /// Names the element.
    pub(crate) fn at(mut self, coordinate: Vec<i64>) -> EmuError {
        self.detail.coordinate = coordinate;
        self
    }

    /// Names a second place.
    pub(crate) fn other(mut self, span: Span, message: impl Into<String>) -> EmuError {
        self.detail.other = Some((span, message.into()));
        self
    }

    /// Counts the thread from the first one of its role.
    pub(crate) fn threads_from(mut self, first: u32) -> EmuError {
        self.detail.thread = self.detail.thread.map(|thread| thread.saturating_add(first));
        self
    }

    /// Names the thread.
    pub(crate) fn thread(mut self, thread: usize) -> EmuError {
        self.detail.thread = u32::try_from(thread).ok();
        self
    }

    /// Says what to write.
    pub(crate) fn help(mut self, help: impl Into<String>) -> EmuError {
        self.detail.help = Some(help.into());
        self
    }

    /// Names the CTA.
    pub(crate) fn in_cta(mut self, cta: [u32; 3]) -> EmuError {
        self.detail.cta = Some(cta);
        self
    }

    /// Names the rank.
    pub(crate) fn on_rank(mut self, rank: usize) -> EmuError {
        self.detail.rank = u32::try_from(rank).ok();
        self
    }

    /// Names the launch.
    pub(crate) fn in_launch(mut self, launch: usize) -> EmuError {
        self.detail.launch = u32::try_from(launch).ok();
        self
    }

    /// The diagnostic code.
    pub fn code(&self) -> Code {
        self.kind.code()
    }

    /// The error as the diagnostics of all other stages are.
    pub fn to_diagnostic(&self) -> Diagnostic {
        let mut diagnostic = Diagnostic::error(self.code(), &self.message).label(self.span, "");
        if let Some((span, message)) = &self.detail.other {
            diagnostic = diagnostic.secondary(*span, message);
        }
        let mut places = Vec::new();
        if let Some(rank) = self.detail.rank {
            places.push(format!("on rank {rank}"));
        }
        if let Some(launch) = self.detail.launch {
            places.push(format!("in launch {launch}"));
        }
        if let Some([x, y, z]) = self.detail.cta {
            places.push(format!("in CTA ({x}, {y}, {z})"));
        }
        if let Some(thread) = self.detail.thread {
            places.push(format!("thread {thread}"));
        }
        if !self.detail.coordinate.is_empty() {
            places.push(format!("at element {:?}", self.detail.coordinate));
        }
        if !places.is_empty() {
            diagnostic = diagnostic.note(places.join(", "));
        }
        if let Some(help) = &self.detail.help {
            diagnostic = diagnostic.help(help);
        }
        diagnostic
    }
}

impl fmt::Display for EmuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message)?;
        if let Some(rank) = self.detail.rank {
            write!(f, ", on rank {rank}")?;
        }
        if let Some(launch) = self.detail.launch {
            write!(f, ", in launch {launch}")?;
        }
        if let Some([x, y, z]) = self.detail.cta {
            write!(f, ", in CTA ({x}, {y}, {z})")?;
        }
        if let Some(thread) = self.detail.thread {
            write!(f, ", thread {thread}")?;
        }
        if !self.detail.coordinate.is_empty() {
            write!(f, ", at element {:?}", self.detail.coordinate)?;
        }
        Ok(())
    }
}

impl std::error::Error for EmuError {}

impl From<EmuError> for Diagnostic {
    fn from(error: EmuError) -> Diagnostic {
        error.to_diagnostic()
    }
}
