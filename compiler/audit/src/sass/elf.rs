//! What a cubin says of its kernels beside their code: parameters, threads, registers, and targets of indirect branches.

use std::collections::BTreeMap;

/// Facts of a cubin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CubinInfo {
    /// Number of the architecture, 90 for sm_90 and sm_90a.
    pub(crate) architecture: u32,
    pub(crate) kernels: BTreeMap<String, KernelInfo>,
    /// Names of the functions whose addresses constant bank 4 holds, for calls through it.
    pub(crate) bank_functions: Vec<String>,
}

/// Facts of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelInfo {
    /// Offset and bytes of each parameter, by ordinal.
    pub(crate) params: Vec<(u32, u32)>,
    /// Offset of the parameters in constant bank 0.
    pub(crate) params_at: Option<u32>,
    /// Threads of a CTA along x, y, z, where the kernel demands a number.
    pub(crate) threads: Option<[u32; 3]>,
    /// Registers of a thread, where the file says so.
    pub(crate) registers: Option<u32>,
    /// Targets of indirect branches, by the address of the branch.
    pub(crate) branches: BTreeMap<u64, Vec<u64>>,
}

const KPARAM_INFO: u8 = 0x17;
const KPARAM_INFO_V2: u8 = 0x45;
const PARAM_CBANK: u8 = 0x0a;
const REQUIRED_THREADS: u8 = 0x10;
const REGISTERS: u8 = 0x2f;
const INDIRECT_BRANCH_TARGETS: u8 = 0x34;
/// Format of an attribute with a length and that many bytes.
const SIZED: u8 = 4;
/// Kernel parameters take no more than this many bytes.
const MOST_PARAMS: usize = 8192;

/// Sections of the file.
struct File<'a> {
    bytes: &'a [u8],
    table: usize,
    row_bytes: usize,
    rows: usize,
    names: &'a [u8],
}

/// Reads the facts; `None` where the bytes are no cubin.
pub(crate) fn read(bytes: &[u8]) -> Option<CubinInfo> {
    let file = File::open(bytes)?;
    let mut info = CubinInfo { architecture: architecture(bytes)?, ..CubinInfo::default() };
    let mut registers = Vec::new();
    for row in (0..file.rows).filter_map(|index| file.row(index)) {
        let Some(name) = file.name(row) else { continue };
        if let Some(kernel) = name.strip_prefix(".nv.info.") {
            if let Some(data) = file.content(row) {
                info.kernels.insert(kernel.to_owned(), kernel_info(data));
            }
        } else if name == ".nv.info" {
            registers = file.registers(row).unwrap_or_default();
        } else if name == ".rela.nv.constant4" || name == ".rel.nv.constant4" {
            let entry = if name.starts_with(".rela") { 24 } else { 16 };
            info.bank_functions = file.functions(row, entry).unwrap_or_default();
        }
    }
    for (name, count) in registers {
        if let Some(kernel) = info.kernels.get_mut(&name) {
            kernel.registers = Some(count);
        }
    }
    Some(info)
}

/// The architecture stands in the flags of the file: in their second byte since version 8 of the format, in the first
/// one before.
fn architecture(bytes: &[u8]) -> Option<u32> {
    let flags = u32_at(bytes, 48)?;
    let version = *bytes.get(8)?;
    Some(if version >= 8 { flags >> 8 & 0xff } else { flags & 0xff })
}

impl<'a> File<'a> {
    fn open(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.get(..64)?;
        let is_elf64 = header.starts_with(b"\x7fELF") && header[4] == 2 && header[5] == 1;
        let is_cuda = u16_at(header, 18)? == 190;
        if !is_elf64 || !is_cuda {
            return None;
        }
        let mut file = File {
            bytes,
            table: usize::try_from(u64_at(header, 40)?).ok()?,
            row_bytes: usize::from(u16_at(header, 58)?),
            rows: usize::from(u16_at(header, 60)?),
            names: &[],
        };
        let names = file.row(usize::from(u16_at(header, 62)?))?;
        file.names = file.content(names)?;
        Some(file)
    }

    /// The header of a section.
    fn row(&self, index: usize) -> Option<&'a [u8]> {
        let start = self.table.checked_add(index.checked_mul(self.row_bytes)?)?;
        self.bytes.get(start..)?.get(..64)
    }

    fn content(&self, row: &[u8]) -> Option<&'a [u8]> {
        let offset = usize::try_from(u64_at(row, 24)?).ok()?;
        let len = usize::try_from(u64_at(row, 32)?).ok()?;
        self.bytes.get(offset..offset.checked_add(len)?)
    }

    fn name(&self, row: &[u8]) -> Option<String> {
        text_at(self.names, u32_at(row, 0)? as usize)
    }

    /// Registers of each function, by its name.
    fn registers(&self, row: &[u8]) -> Option<Vec<(String, u32)>> {
        let symbols_row = self.row(u32_at(row, 40)? as usize)?;
        let symbols = self.content(symbols_row)?;
        let names = self.content(self.row(u32_at(symbols_row, 40)? as usize)?)?;
        let mut list = Vec::new();
        for (kind, value) in attributes(self.content(row)?) {
            if kind == REGISTERS {
                let index = u32_at(value, 0)? as usize;
                let symbol = symbols.get(index.checked_mul(24)?..)?.get(..24)?;
                list.push((text_at(names, u32_at(symbol, 0)? as usize)?, u32_at(value, 4)?));
            }
        }
        Some(list)
    }

    /// Names of the functions that the relocations of a section speak of.
    fn functions(&self, row: &[u8], entry: usize) -> Option<Vec<String>> {
        let symbols_row = self.row(u32_at(row, 40)? as usize)?;
        let symbols = self.content(symbols_row)?;
        let names = self.content(self.row(u32_at(symbols_row, 40)? as usize)?)?;
        let mut list = Vec::new();
        for relocation in self.content(row)?.chunks_exact(entry) {
            let index = usize::try_from(u64_at(relocation, 8)? >> 32).ok()?;
            let symbol = symbols.get(index.checked_mul(24)?..)?.get(..24)?;
            // The low half of the information byte is the type; 2 is a function.
            let is_function = symbol[4] & 0xf == 2;
            if is_function {
                list.push(text_at(names, u32_at(symbol, 0)? as usize)?);
            }
        }
        Some(list)
    }
}

fn text_at(names: &[u8], start: usize) -> Option<String> {
    let tail = names.get(start..)?;
    let len = tail.iter().position(|&b| b == 0).unwrap_or(tail.len());
    Some(String::from_utf8_lossy(&tail[..len]).into_owned())
}

/// Attributes that have a length, each with its value.
fn attributes(data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let (&format, &kind) = (data.get(at)?, data.get(at + 1)?);
            let size = usize::from(u16_at(data, at + 2)?);
            at += 4;
            if format == SIZED {
                let value = data.get(at..at + size)?;
                at += size;
                return Some((kind, value));
            }
        }
    })
}

fn kernel_info(data: &[u8]) -> KernelInfo {
    let mut info = KernelInfo::default();
    let mut params: BTreeMap<u16, (u32, u32)> = BTreeMap::new();
    for (kind, value) in attributes(data) {
        match kind {
            KPARAM_INFO | KPARAM_INFO_V2 => {
                let (Some(ordinal), Some(offset)) = (u16_at(value, 4), u16_at(value, 6)) else {
                    continue;
                };
                let bytes = if kind == KPARAM_INFO {
                    u32_at(value, 8).map(|packed| packed >> 18)
                } else {
                    u16_at(value, 8).map(u32::from)
                };
                let Some(bytes) = bytes else { continue };
                params.insert(ordinal, (u32::from(offset), bytes));
            }
            REQUIRED_THREADS => {
                let along = [0, 4, 8].map(|at| u32_at(value, at));
                if let [Some(x), Some(y), Some(z)] = along {
                    info.threads = Some([x, y, z]);
                }
            }
            PARAM_CBANK => info.params_at = u16_at(value, 4).map(u32::from),
            INDIRECT_BRANCH_TARGETS => branches(value, &mut info.branches),
            _ => {}
        }
    }
    let count = params.keys().last().map_or(0, |&last| usize::from(last) + 1).min(MOST_PARAMS);
    info.params =
        (0..count).map(|index| params.get(&(index as u16)).copied().unwrap_or((0, 0))).collect();
    info
}

/// Records of an address, four bytes, a count, and the targets.
fn branches(value: &[u8], into: &mut BTreeMap<u64, Vec<u64>>) {
    let mut at = 0;
    while let (Some(branch), Some(count)) = (u32_at(value, at), u32_at(value, at + 8)) {
        at += 12;
        let mut targets = Vec::new();
        for _ in 0..count {
            let Some(target) = u32_at(value, at) else { return };
            targets.push(u64::from(target));
            at += 4;
        }
        into.insert(u64::from(branch), targets);
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
