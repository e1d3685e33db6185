//! The codes of what the audit says.

/// One kind of finding or note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// A non-coherent load of data that may change while the grid runs.
    NonCoherent,
    /// A load that is not left on its side of a wait in the machine code.
    Moved,
    /// In our own builds: a load of a static parameter that sank below the wait.
    Sunk,
    /// An instruction, a call or a branch that was not understood; the kernel is not judged.
    NotUnderstood,
    /// A load that stands ahead of the wait.
    Early,
    /// In our own builds: a wait or a launch signal that is no longer there.
    MissingSync,
    /// In our own builds: an atomic without order and scope.
    BareAtomic,
    /// In our own builds: an ordinary access at a multicast address.
    Multicast,
    /// An asynchronous read of what threads stored, without a fence of the proxy.
    Unfenced,
    /// A signal ahead of the end of an asynchronous store.
    Unfinished,
    /// A tool of the machine code is missing or failed.
    Tool,
}

impl Code {
    /// Every code, in order.
    pub const ALL: [Code; 11] = [
        Code::NonCoherent,
        Code::Moved,
        Code::Sunk,
        Code::NotUnderstood,
        Code::Early,
        Code::MissingSync,
        Code::BareAtomic,
        Code::Tool,
        Code::Multicast,
        Code::Unfenced,
        Code::Unfinished,
    ];

    /// The code as it is printed.
    pub fn code(self) -> &'static str {
        match self {
            Code::NonCoherent => "E0901",
            Code::Moved => "E0902",
            Code::Sunk => "E0903",
            Code::NotUnderstood => "E0904",
            Code::Early => "E0905",
            Code::MissingSync => "E0906",
            Code::BareAtomic => "E0907",
            Code::Multicast => "E0909",
            Code::Unfenced => "E0910",
            Code::Unfinished => "E0911",
            Code::Tool => "E0908",
        }
    }

    /// What the code means, in one line.
    pub fn title(self) -> &'static str {
        match self {
            Code::NonCoherent => "non-coherent load of data that may change",
            Code::Moved => "load moved across its wait in the machine code",
            Code::Sunk => "static load sank below its wait",
            Code::NotUnderstood => "not understood, hence not judged",
            Code::Early => "load ahead of the wait",
            Code::MissingSync => "a wait or a launch signal is missing",
            Code::BareAtomic => "atomic without order and scope",
            Code::Multicast => "ordinary access at a multicast address",
            Code::Unfenced => "asynchronous read of what was stored without a proxy fence",
            Code::Unfinished => "signal ahead of the end of an asynchronous store",
            Code::Tool => "a tool of the machine code failed",
        }
    }
}
