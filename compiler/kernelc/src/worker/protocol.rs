//! What goes over the pipes: frames of a length (four bytes, little end first) and that many bytes. A
//! request and an answer are one frame of JSON each; machine code follows its answer in a frame of its own.

use std::io::{self, Read, Write};

use kernel_codegen::{CodegenError, Stage, Tools, Usage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Done, Job};

/// Longest frame: what is longer is noise on the pipe.
const MAX_FRAME_BYTES: u32 = 1 << 30;

/// A job, as it is sent.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    /// The work.
    pub(super) job: &'a Job,
    /// The tools to run.
    pub(super) tools: &'a Tools,
}

/// A job, as it arrives.
#[derive(Debug, Deserialize)]
pub(super) struct ReceivedRequest {
    /// The work.
    pub(super) job: Job,
    /// The tools to run.
    pub(super) tools: Tools,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It enters a stage.
    Enters(Stage),
    /// It is done; machine code follows when there is a usage.
    Done {
        /// The module before any pass.
        mlir: Option<String>,
        /// The module before LLVM's passes.
        llvm: Option<String>,
        /// PTX.
        ptx: Option<String>,
        /// What the machine code needs.
        usage: Option<Usage>,
    },
    /// It failed, and goes on.
    Failed(CodegenError),
}

/// What a parent learns.
#[derive(Debug)]
pub(super) enum Event {
    /// The worker enters a stage.
    Enters(Stage),
    /// The job has an answer.
    Answer(Result<Done, CodegenError>),
}

/// Writes one frame of JSON.
pub(super) fn send(pipe: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    send_bytes(pipe, &serde_json::to_vec(message)?)
}

/// Writes one frame.
pub(super) fn send_bytes(pipe: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).ok().filter(|&n| n <= MAX_FRAME_BYTES);
    let length = length.ok_or_else(|| io::Error::other("a message is too long"))?;
    pipe.write_all(&length.to_le_bytes())?;
    pipe.write_all(bytes)?;
    pipe.flush()
}

/// Reads one frame; `None` at the end of the pipe.
pub(super) fn receive_bytes(pipe: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match pipe.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::other("a message is too long"));
    }
    let mut bytes = Vec::new();
    pipe.take(u64::from(length)).read_to_end(&mut bytes)?;
    if bytes.len() != length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(bytes))
}

/// Reads one frame of JSON; `None` at the end of the pipe.
pub(super) fn receive<T: DeserializeOwned>(pipe: &mut impl Read) -> io::Result<Option<T>> {
    match receive_bytes(pipe)? {
        None => Ok(None),
        Some(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
    }
}

/// Reads what a worker says next; `None` at the end of the pipe.
pub(super) fn receive_event(pipe: &mut impl Read) -> io::Result<Option<Event>> {
    Ok(Some(match receive(pipe)? {
        None => return Ok(None),
        Some(Reply::Enters(stage)) => Event::Enters(stage),
        Some(Reply::Failed(error)) => Event::Answer(Err(error)),
        Some(Reply::Done { mlir, llvm, ptx, usage }) => {
            let cubin = match usage {
                None => None,
                Some(usage) => match receive_bytes(pipe)? {
                    None => return Ok(None),
                    Some(bytes) => Some((bytes, usage)),
                },
            };
            Event::Answer(Ok(Done { mlir, llvm, ptx, cubin }))
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_broken_ones_are_errors() {
        let mut pipe = Vec::new();
        send(&mut pipe, &Reply::Enters(Stage::Ptx)).unwrap();
        let usage = Usage { registers: 40, ..Usage::default() };
        let done =
            Reply::Done { mlir: None, llvm: None, ptx: Some("p".into()), usage: Some(usage) };
        send(&mut pipe, &done).unwrap();
        send_bytes(&mut pipe, &[1, 2, 3]).unwrap();
        let mut reader = pipe.as_slice();
        let Some(Event::Enters(Stage::Ptx)) = receive_event(&mut reader).unwrap() else { panic!() };
        let Some(Event::Answer(Ok(done))) = receive_event(&mut reader).unwrap() else { panic!() };
        assert_eq!(done.cubin, Some((vec![1, 2, 3], usage)));
        assert!(receive_event(&mut reader).unwrap().is_none());
        assert!(receive_bytes(&mut [255u8; 8].as_slice()).is_err(), "too long");
        assert!(receive_bytes(&mut [8u8, 0, 0, 0, 1].as_slice()).is_err(), "cut short");
    }
}
