//! A bundle mapped into memory, read-only, and what happens where a part of it goes away: the one place of this crate
//! with code that the compiler cannot check.
//!
//! A read behind the end of a mapped file is a bus error. [`end_on_bus_error`] makes it end the process with a message
//! that names the file; the handler knows the mapped ranges from a table of atomics.

use std::io::Error;
use std::path::Path;

use memmap2::Mmap;

use crate::files::open_regular;

/// A mapped file.
#[derive(Debug)]
pub(super) struct MappedFile {
    map: Mmap,
    #[cfg(unix)]
    entry: Option<guard::Entry>,
}

impl MappedFile {
    /// Maps a regular file.
    pub(super) fn open(path: &Path) -> Result<MappedFile, Error> {
        let file = open_regular(path)?;
        #[expect(unsafe_code, reason = "a file can be mapped no other way")]
        // SAFETY: `file` is open for reading and was a regular file; the map is private to `MappedFile`, is never
        // written, and is handed out only as `&[u8]` that borrows it. What stays with the user, as the module above
        // says, is to replace a bundle by another file instead of writing into it.
        let map = unsafe { Mmap::map(&file)? };
        Ok(MappedFile {
            #[cfg(unix)]
            entry: guard::Entry::new(&map, path),
            map,
        })
    }

    /// Everything in the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(unix)]
impl Drop for MappedFile {
    fn drop(&mut self) {
        // Before the range is unmapped and may be that of something else.
        drop(self.entry.take());
    }
}

/// Makes a bus error in a mapped bundle end this process with this exit code, after a line on standard error with
/// B0108 and the path of the bundle. Any other bus error ends the process as it would have without.
pub fn end_on_bus_error(exit: u8) {
    #[cfg(unix)]
    guard::listen(exit);
    #[cfg(not(unix))]
    let _ = exit;
}

/// Makes a write that would make a file longer than this process may make one an error of the write, in place of the
/// signal SIGXFSZ that ends the process without a word.
pub fn fail_at_size_limit() {
    #[cfg(unix)]
    guard::ignore_size_limit();
}

/// The mapped ranges, and the handler that looks at them.
#[cfg(unix)]
mod guard {
    #![expect(unsafe_code, reason = "a handler of a signal is set and works by calls of C")]

    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr;
    use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

    use crate::bundle::BundleCode;

    /// Ranges that are known at a time at most; a bundle that finds no room has no message.
    const MOST: usize = 64;

    /// A mapped range: free where `end` is 0.
    struct Slot {
        start: AtomicUsize,
        end: AtomicUsize,
        text: AtomicPtr<u8>,
        length: AtomicUsize,
    }

    static SLOTS: [Slot; MOST] = [const {
        Slot {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            text: AtomicPtr::new(ptr::null_mut()),
            length: AtomicUsize::new(0),
        }
    }; MOST];

    static EXIT: AtomicI32 = AtomicI32::new(0);

    /// What a slot holds while it is being filled: no address is in it.
    const TAKEN: usize = usize::MAX;

    /// A range in the table, with what is said when a part of it is gone.
    #[derive(Debug)]
    pub(super) struct Entry {
        slot: usize,
        /// Read by the handler; alive as long as the range is in the table.
        _text: Box<[u8]>,
    }

    impl Entry {
        /// Enters a range; `None` where there is no room, or nothing is mapped.
        pub(super) fn new(map: &[u8], path: &Path) -> Option<Entry> {
            if map.is_empty() {
                return None;
            }
            let code = BundleCode::Gone.name();
            let start = format!("error[{code}]: ");
            let text = [
                start.as_bytes(),
                path.as_os_str().as_bytes(),
                b": a part of it is gone: it was cut off while it was in use\n",
            ];
            let mut text = text.concat().into_boxed_slice();
            let start = map.as_ptr().addr();
            // Between them no address lies.
            let take = |slot: &Slot| {
                slot.start.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            let slot = SLOTS.iter().position(take)?;
            SLOTS[slot].text.store(text.as_mut_ptr(), Ordering::Release);
            SLOTS[slot].length.store(text.len(), Ordering::Release);
            SLOTS[slot].end.store(start + map.len(), Ordering::Release);
            SLOTS[slot].start.store(start, Ordering::Release);
            Some(Entry { slot, _text: text })
        }
    }

    impl Drop for Entry {
        fn drop(&mut self) {
            let slot = &SLOTS[self.slot];
            slot.end.store(0, Ordering::Release);
            slot.start.store(0, Ordering::Release);
        }
    }

    /// Sets the handler.
    pub(super) fn listen(exit: u8) {
        EXIT.store(i32::from(exit), Ordering::Release);
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus;
        // SAFETY: all zeros are a value of this struct of C.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: writes the set of signals of a struct that lives here.
        unsafe { libc::sigemptyset(&raw mut action.sa_mask) };
        // SAFETY: the struct is whole, and the handler has the signature that SA_SIGINFO asks for. An error leaves the
        // handler of before: a bus error ends the process then, without a message.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
    }

    /// Ignores SIGXFSZ.
    pub(super) fn ignore_size_limit() {
        // SAFETY: takes two numbers; nothing else of this process handles this signal. An error leaves what was.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }

    /// The handler. It calls nothing but `write`, `_exit`, `signal` and `raise`, which may be called in one.
    extern "C" fn on_bus(
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        _context: *mut libc::c_void,
    ) {
        // SAFETY: the system gives a handler with SA_SIGINFO a whole struct; for a bus error it has an address.
        let address = unsafe { (*info).si_addr() }.addr();
        for slot in &SLOTS {
            let (start, end) =
                (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
            if start <= address && address < end {
                let text = slot.text.load(Ordering::Acquire);
                let length = slot.length.load(Ordering::Acquire);
                // SAFETY: the text of a range lives as long as the range is in the table, and somebody reads it now.
                unsafe { libc::write(2, text.cast(), length) };
                // SAFETY: takes a number and does not return.
                unsafe { libc::_exit(EXIT.load(Ordering::Acquire)) };
            }
        }
        // SAFETY: the fault of somebody else: what happens without a handler happens when this one is over.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // SAFETY: as above.
        unsafe { libc::raise(signal) };
    }
}
