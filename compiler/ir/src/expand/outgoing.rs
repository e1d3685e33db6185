//! Copies out of shared memory: the same runs and boxes as those into it, in groups that their thread waits for.

use kernel_dsl::diag::Diagnostic;

use super::Expander;
use crate::device::{DeviceOp, DevicePipe, WarpgroupOp};
use crate::kernel::{CopyWay, Evict, Outgoing, TileAccess};

impl Expander<'_> {
    pub(super) fn outgoing(&mut self, op: &Outgoing) -> Result<(), Diagnostic> {
        let pipe = match op {
            Outgoing::Copy { source, dest, evict, way } => {
                let copy = match way {
                    CopyWay::Bulk => {
                        let (source, dest, pieces) = self.runs(source, dest)?;
                        DevicePipe::CopyOut { source, dest, pieces, evict: *evict }
                    }
                    CopyWay::Tensor => self.box_out(source, dest, *evict)?,
                };
                self.b.emit(DeviceOp::Pipe(copy));
                DevicePipe::CommitGroup
            }
            Outgoing::EmptyGroup => DevicePipe::CommitGroup,
            Outgoing::Settle { storage, pending, .. } => {
                DevicePipe::WaitGroup { pending: *pending, reads: storage.tile().is_some() }
            }
            Outgoing::Publish { storage } => {
                let fence = match storage.tile() {
                    Some(_) => DeviceOp::Warpgroup(WarpgroupOp::ProxyFence),
                    None => DeviceOp::Pipe(DevicePipe::Fence),
                };
                self.b.emit(fence);
                return Ok(());
            }
        };
        self.b.emit(DeviceOp::Pipe(pipe));
        Ok(())
    }

    fn box_out(
        &mut self,
        source: &TileAccess,
        dest: &TileAccess,
        evict: Option<Evict>,
    ) -> Result<DevicePipe, Diagnostic> {
        let (map, at, source, offset) = self.box_between(dest, source)?;
        Ok(DevicePipe::BoxOut { map, at, source, offset, evict })
    }
}
