//! The worker's side: one job after the other until the pipe closes.

use std::io::{self, BufReader, Write};
use std::panic;

use kernel_codegen::{Artifacts, CodegenError, Input, run};
use kernel_ir::target::Target;

use super::protocol::{ReceivedRequest, Reply, receive, send, send_bytes};
use super::{Job, JobInput};

/// The exit code after a panic.
const PANICKED: i32 = 101;

/// Answers jobs on standard input until it closes. A panic ends the process, as an abort of LLVM does, and
/// leaves its message on standard error: the parent reports both the same way.
pub fn serve() {
    panic::set_hook(Box::new(|info| {
        let _ = writeln!(io::stderr(), "{info}");
        std::process::exit(PANICKED);
    }));
    let mut requests = BufReader::new(io::stdin().lock());
    let mut replies = io::stdout().lock();
    // A broken pipe means that the parent is gone, and there is nobody left to tell.
    while let Ok(Some(request)) = receive::<ReceivedRequest>(&mut requests) {
        if answer(&request, &mut replies).is_err() {
            break;
        }
    }
}

fn answer(request: &ReceivedRequest, replies: &mut impl Write) -> io::Result<()> {
    let mut broken = None;
    let made = work(request, &mut |stage| {
        if let Err(error) = send(replies, &Reply::Enters(stage)) {
            broken = Some(error);
        }
    });
    if let Some(error) = broken {
        return Err(error);
    }
    match made {
        Err(error) => send(replies, &Reply::Failed(error)),
        Ok(Artifacts { mlir, llvm, ptx, cubin }) => {
            let usage = cubin.as_ref().map(|cubin| cubin.usage);
            send(replies, &Reply::Done { mlir, llvm, ptx, usage })?;
            cubin.map_or(Ok(()), |cubin| send_bytes(replies, &cubin.bytes))
        }
    }
}

fn work(
    request: &ReceivedRequest,
    enter: &mut dyn FnMut(kernel_codegen::Stage),
) -> Result<Artifacts, CodegenError> {
    let Job { name, target, input, last, reproduce: _ } = &request.job;
    let Some(target) = Target::from_name(target) else {
        return Err(CodegenError::Worker(format!("`{target}` is no target")));
    };
    let input = match input {
        JobInput::Device(kernel, places) => Input::Kernel { kernel, places },
        JobInput::Mlir(text) => Input::Mlir(text),
        JobInput::Llvm(text) => Input::Llvm(text),
        JobInput::Ptx(text) => Input::Ptx(text),
    };
    run(input, name, target, *last, &request.tools, enter)
}
