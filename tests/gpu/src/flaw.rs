//! Kernels with a flaw each, by hand, that a tool of compute-sanitizer must find: without them a clean report could
//! mean that the tool saw nothing.

use kernel_abi::{Access, DType};
use kernel_runtime::{Buffer, Device, Kernel, RuntimeError, Stream, Value};

use crate::arguments::Arguments;
use crate::by_hand;

const THREADS: u32 = 64;

/// The body for each tool; `%rd1` is a buffer of 64 words that nobody has written.
const FLAWS: [(&str, &str); 4] = [
    ("memcheck", "  ld.global.u32 %r2, [%rd1+256];\n  st.global.u32 [%rd1], %r2;\n"),
    (
        "racecheck",
        "  mov.u32 %r1, %tid.x;\n  shl.b32 %r2, %r1, 2;\n  mov.u32 %r3, s;\n  add.u32 %r4, %r3, %r2;\n  \
         st.shared.u32 [%r4], %r1;\n  xor.b32 %r2, %r2, 128;\n  add.u32 %r4, %r3, %r2;\n  \
         ld.shared.u32 %r5, [%r4];\n  mul.wide.u32 %rd2, %r1, 4;\n  add.s64 %rd3, %rd1, %rd2;\n  \
         st.global.u32 [%rd3], %r5;\n",
    ),
    ("initcheck", "  ld.global.u32 %r2, [%rd1];\n  st.global.u32 [%rd1+4], %r2;\n"),
    (
        "synccheck",
        "  mov.u32 %r1, %tid.x;\n  mul.wide.u32 %rd2, %r1, 4;\n  add.s64 %rd3, %rd1, %rd2;\n  \
         setp.lt.u32 %p1, %r1, 16;\n  @%p1 bar.sync 0;\n  st.global.u32 [%rd3], %r1;\n",
    ),
];

/// The kernel for a tool.
fn ptx(body: &str, target: &str) -> String {
    format!(
        ".version 8.8\n.target {target}\n.address_size 64\n.visible .entry flaw(.param .u64 x)\n.reqntid {THREADS}\n{{\n  \
         .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .pred %p<2>;\n  .shared .align 4 .b8 s[256];\n  \
         ld.param.u64 %rd1, [x];\n{body}  ret;\n}}\n"
    )
}

/// Runs the kernel with the flaw that the named tool looks for.
///
/// # Errors
/// No such tool, no device, or what the device says of the flaw.
pub(crate) fn main(all: &Arguments, say: fn(&str)) -> Result<u8, String> {
    let tool = all.rest.first().ok_or("a tool is missing")?;
    let flaw = FLAWS.iter().find(|(name, _)| name == tool);
    let (_, body) = flaw.ok_or_else(|| format!("there is no tool `{tool}`"))?;
    run(all.device, body).map_err(|error| format!("{}: {error}", error.code().name()))?;
    say("the flaw was run\n");
    Ok(0)
}

fn run(ordinal: u32, body: &str) -> Result<(), RuntimeError> {
    let device = Device::open(ordinal)?;
    let target = format!("{}a", device.info().architecture());
    let text = ptx(body, &target);
    let x = by_hand::buffer("x", Access::Inout, DType::U32, u64::from(THREADS));
    let image = by_hand::image("flaw", vec![x], THREADS, &target, &text);
    let kernel = Kernel::load(&device, &image)?;
    let buffer = Buffer::new(&device, "x", DType::U32, u64::from(THREADS))?;
    let stream = Stream::new(&device)?;
    stream.launch(&kernel, &[("x", Value::Buffer(&buffer))])?;
    stream.finish(|| vec!["flaw".to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_has_a_kernel() {
        for (tool, body) in FLAWS {
            assert!(crate::sanitize::TOOLS.contains(&tool));
            let text = ptx(body, "sm_90a");
            assert!(text.contains(".target sm_90a\n") && text.ends_with("  ret;\n}\n"), "{text}");
        }
        assert_eq!(FLAWS.len(), crate::sanitize::TOOLS.len());
    }
}
