//! What a file of machine code says of a kernel, for those who were told something else of it.

use crate::sass::elf;

/// Facts of a kernel in a cubin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFacts {
    /// Number of the architecture: 90 for sm_90 and sm_90a.
    pub architecture: u32,
    /// Bytes of each parameter.
    pub param_bytes: Vec<u32>,
    /// Threads of a CTA along x, y, z, where the kernel demands a number.
    pub threads: Option<[u32; 3]>,
    /// Registers of a thread, where the file says so.
    pub registers: Option<u32>,
}

/// Facts of the kernel of that name; `None` where the bytes are no cubin or hold no such kernel.
pub fn machine_facts(cubin: &[u8], entry: &str) -> Option<MachineFacts> {
    let info = elf::read(cubin)?;
    let kernel = info.kernels.get(entry)?;
    Some(MachineFacts {
        architecture: info.architecture,
        param_bytes: kernel.params.iter().map(|&(_, bytes)| bytes).collect(),
        threads: kernel.threads,
        registers: kernel.registers,
    })
}
