//! The machine instructions that touch memory or synchronise, by opcode.
//!
//! Names are those of nvdisasm 13.5.37 for sm_75 to sm_121. Everything that is not here computes from
//! registers, unless it has a bracketed address: then it is not understood.

use super::Instruction;

/// The kind of a machine instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Computes from registers and constants.
    Compute,
    /// Reads a constant bank into registers.
    ConstantLoad,
    /// Reads global memory through the constant cache.
    ConstantLoadGlobal,
    LoadGlobal,
    LoadGeneric,
    /// Copies global memory to shared memory.
    Copy,
    LoadLocal,
    StoreLocal,
    LoadShared,
    StoreShared,
    /// Stores and reductions without result in global or generic memory.
    Write,
    Atomic,
    AtomicGeneric,
    Texture,
    /// Shared, tensor and other memory that belongs to the CTA, and hints.
    OnChip,
    Barrier,
    Fence,
    /// Discards what the first-level cache holds.
    Invalidate,
    GridWait,
    GridLaunch,
    Branch,
    BranchTable,
    Call,
    Return,
    Exit,
    /// Has an address and is not known.
    Unknown,
}

/// Whether the instruction has the modifier.
pub(crate) fn has(instruction: &Instruction, modifier: &str) -> bool {
    instruction.modifiers.iter().any(|name| name == modifier)
}

/// The class of an instruction.
pub(crate) fn classify(instruction: &Instruction) -> Class {
    let has_address =
        instruction.operands.iter().any(|operand| matches!(operand, super::Operand::Address(_)));
    match instruction.base.as_str() {
        "LDC" | "ULDC" | "LDCU" | "LDCI" if !has_address => Class::ConstantLoad,
        "LDC" | "ULDC" | "LDCU" | "LDCI" => Class::ConstantLoadGlobal,
        "LDG" | "ULDG" | "LDGMC" => Class::LoadGlobal,
        "LD" => Class::LoadGeneric,
        "LDGSTS" | "UBLKCP" | "UTMALDG" | "UTMAREDG" | "UBLKRED" | "UTMASTG" => {
            let reads = match instruction.base.as_str() {
                "LDGSTS" | "UTMALDG" => true,
                "UBLKCP" => instruction.modifiers.last().is_some_and(|m| m == "G"),
                _ => false,
            };
            if reads { Class::Copy } else { Class::OnChip }
        }
        "LDL" => Class::LoadLocal,
        "STL" => Class::StoreLocal,
        "LDS" | "LDSM" | "LDT" | "LDTM" | "ATOMS" | "ULDS" => Class::LoadShared,
        "STG" | "ST" | "RED" | "REDG" | "USTG" | "UREDG" | "UREDGR" => Class::Write,
        "ATOMG" | "UATOMG" => Class::Atomic,
        "ATOM" => Class::AtomicGeneric,
        "TEX" | "TEXS" | "TLD" | "TLDS" | "TLD4" | "TLD4S" | "TXD" | "TMML" | "TXA" | "SULD"
        | "LDU" | "FOOTPRINT" => Class::Texture,
        "CCTL" | "UCCTL" => {
            if has(instruction, "IVALL") {
                Class::Invalidate
            } else {
                Class::OnChip
            }
        }
        "STS" | "STSM" | "STAS" | "USTAS" => Class::StoreShared,
        "STT" | "STTM" | "REDAS" | "REDS" | "CCTLL" | "CCTLT" | "SYNCSU" | "UBLKPF" | "UTMAPF"
        | "UTMACCTL" | "UTMACMDFLUSH" | "UTMALST" | "SUST" | "SUATOM" | "SURED" | "SUQUERY"
        | "TXQ" | "QSPC" | "GETLMEMBASE" | "SETLMEMBASE" | "LDTRAM" | "UCGABAR_GET"
        | "UGETNEXTWORKID" | "UVIRTCOUNT" | "ARRIVES" | "LDGDEPBAR" | "ISBERD" | "ISBEWR"
        | "AL2P" | "ALD" | "AST" | "PIXLD" | "OUT" | "IPA" => Class::OnChip,
        "SYNCS" => {
            if has(instruction, "PHASECHK") {
                Class::Barrier
            } else {
                Class::OnChip
            }
        }
        "BAR" | "UCGABAR_ARV" | "UCGABAR_WAIT" | "WARPSYNC" | "B2R" | "CGABAR" => Class::Barrier,
        "MEMBAR" | "FENCE" | "DEPBAR" | "WARPGROUP" => Class::Fence,
        "ACQBULK" => Class::GridWait,
        "PREEXIT" => Class::GridLaunch,
        "BRA" | "JMP" => Class::Branch,
        "BRX" | "BRXU" | "JMX" | "JMXU" => Class::BranchTable,
        "CALL" => Class::Call,
        "RET" => Class::Return,
        "EXIT" | "KILL" => Class::Exit,
        base if base.starts_with("UTC") || base.starts_with("HGMMA") => Class::OnChip,
        base if base.ends_with("GMMA") || base == "UTMASTG" => Class::OnChip,
        _ if has_address => Class::Unknown,
        _ => Class::Compute,
    }
}
