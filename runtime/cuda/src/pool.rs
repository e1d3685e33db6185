//! Memory that is taken once and used again: blocks that were given back serve the next that fit.

use std::collections::BTreeMap;

use crate::device::Device;
use crate::error::RuntimeError;
use crate::memory::{ALIGNMENT, Buffer, byte_count};
use kernel_abi::DType;

/// Where a pool takes its blocks from.
pub trait Source {
    /// A block.
    type Block;

    /// A block of that many bytes.
    ///
    /// # Errors
    /// There is too little memory.
    fn take(&mut self, bytes: u64) -> Result<Self::Block, RuntimeError>;
}

/// Blocks by size.
#[derive(Debug)]
pub struct Pool<S: Source> {
    source: S,
    idle: BTreeMap<u64, Vec<S::Block>>,
    idle_bytes: u64,
    used_bytes: u64,
    peak_bytes: u64,
}

/// A block of a pool with its size.
#[derive(Debug)]
pub struct Pooled<B> {
    block: B,
    bytes: u64,
}

/// A typed buffer in a block of a pool.
#[derive(Debug)]
pub struct PooledBuffer {
    block: Pooled<Buffer>,
    buffer: Buffer,
}

impl PooledBuffer {
    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

impl<S: Source> Pool<S> {
    /// A pool without blocks.
    pub fn new(source: S) -> Pool<S> {
        let idle = BTreeMap::new();
        Pool { source, idle, idle_bytes: 0, used_bytes: 0, peak_bytes: 0 }
    }

    /// A block of at least that many bytes: the smallest idle one that is at most twice as large, or a new one. Where
    /// there is no memory for a new one the idle ones are freed first.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn take(&mut self, bytes: u64) -> Result<Pooled<S::Block>, RuntimeError> {
        let wanted = bytes.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
        let found =
            self.idle.range(wanted..=wanted.saturating_mul(2)).next().map(|(&size, _)| size);
        let (block, size) = match found {
            Some(size) => {
                let blocks = self.idle.get_mut(&size).expect("the size was found");
                let block = blocks.pop().expect("no size without blocks is kept");
                if blocks.is_empty() {
                    self.idle.remove(&size);
                }
                self.idle_bytes -= size;
                (block, size)
            }
            None => (self.fresh(wanted)?, wanted),
        };
        self.used_bytes += size;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes + self.idle_bytes);
        Ok(Pooled { block, bytes: size })
    }

    /// Takes a block back to be used again. Work that uses it may still run where the next user comes later on the
    /// same stream.
    pub fn give_back(&mut self, pooled: Pooled<S::Block>) {
        self.used_bytes -= pooled.bytes;
        self.idle_bytes += pooled.bytes;
        self.idle.entry(pooled.bytes).or_default().push(pooled.block);
    }

    /// Frees the idle blocks.
    pub fn trim(&mut self) {
        tracing::debug!(bytes = self.idle_bytes, "frees the idle blocks of a pool");
        self.idle.clear();
        self.idle_bytes = 0;
    }

    /// The most bytes that it held, in use and idle.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    fn fresh(&mut self, bytes: u64) -> Result<S::Block, RuntimeError> {
        match self.source.take(bytes) {
            Err(RuntimeError::Memory { .. }) if self.idle_bytes > 0 => {
                self.trim();
                self.source.take(bytes)
            }
            other => other,
        }
    }
}

impl Pool<Device> {
    /// A buffer in a block of the pool; the content is what was there.
    ///
    /// # Errors
    /// There is too little memory, or the device was lost.
    pub fn buffer(
        &mut self,
        name: &str,
        dtype: DType,
        elements: u64,
    ) -> Result<PooledBuffer, RuntimeError> {
        let block = self.take(byte_count(name, dtype, elements)? as u64)?;
        let buffer = block.block.part(0, name, dtype, elements)?;
        Ok(PooledBuffer { block, buffer })
    }

    /// Takes a buffer back, as [`Pool::give_back`] a block.
    pub fn give_back_buffer(&mut self, pooled: PooledBuffer) {
        self.give_back(pooled.block);
    }

    /// Refuses what needs more memory than is free, after the idle blocks were freed if they are in the way.
    ///
    /// # Errors
    /// There is less, or the device was lost.
    pub fn check_free(&mut self, what: &str, needed: u64) -> Result<(), RuntimeError> {
        match self.source.check_free(what, needed) {
            Err(RuntimeError::Memory { .. }) if self.idle_bytes > 0 => {
                self.trim();
                self.source.check_free(what, needed)
            }
            other => other,
        }
    }
}

impl Source for Device {
    type Block = Buffer;

    fn take(&mut self, bytes: u64) -> Result<Buffer, RuntimeError> {
        Buffer::new(self, "block", DType::U8, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of a limited size whose blocks count themselves.
    struct Limited {
        free: std::rc::Rc<std::cell::Cell<u64>>,
    }

    struct Block(u64, std::rc::Rc<std::cell::Cell<u64>>);

    impl Drop for Block {
        fn drop(&mut self) {
            self.1.set(self.1.get() + self.0);
        }
    }

    impl Source for Limited {
        type Block = Block;

        fn take(&mut self, bytes: u64) -> Result<Block, RuntimeError> {
            let free = self.free.get();
            if bytes > free {
                let what = "a block".to_owned();
                let (total, others) = (4096, 0);
                return Err(RuntimeError::Memory { what, needed: bytes, free, total, others });
            }
            self.free.set(free - bytes);
            Ok(Block(bytes, self.free.clone()))
        }
    }

    fn pool() -> Pool<Limited> {
        Pool::new(Limited { free: std::rc::Rc::new(std::cell::Cell::new(4096)) })
    }

    #[test]
    fn blocks_are_used_again() {
        let mut pool = pool();
        let first = pool.take(1000).unwrap();
        assert_eq!(first.bytes, 1024);
        pool.give_back(first);
        assert_eq!((pool.used_bytes, pool.idle_bytes), (0, 1024));
        let again = pool.take(600).unwrap();
        assert_eq!((again.bytes, again.block.0), (1024, 1024));
        // Half as large is too small for it.
        let small = pool.take(100).unwrap();
        assert_eq!(small.bytes, 256);
        assert_eq!((pool.used_bytes, pool.idle_bytes, pool.peak_bytes()), (1280, 0, 1280));
    }

    #[test]
    fn idle_blocks_make_room() {
        let mut pool = pool();
        let blocks: Vec<_> = (0..4).map(|_| pool.take(1024).unwrap()).collect();
        let error = pool.take(1).err().unwrap();
        assert_eq!(error.code().name(), "R0201");
        for block in blocks {
            pool.give_back(block);
        }
        let all = pool.take(4096).unwrap();
        assert_eq!((all.bytes, pool.used_bytes, pool.idle_bytes), (4096, 4096, 0));
    }
}
