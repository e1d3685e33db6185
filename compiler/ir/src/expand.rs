//! Expansion: kernel level to device level.

#[cfg(test)]
pub(crate) mod sample;
