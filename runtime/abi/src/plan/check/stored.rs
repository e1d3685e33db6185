//! In which order the elements of each weight lie in memory: as all kernels that read it want them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Checker;
use crate::plan::{ArgumentValue, BufferId, NodeOp, PlanCode};
use crate::stored::StoredLayout;

/// Who reads a buffer first, and in which order; row-major without a layout.
struct Reader<'p> {
    node: &'p str,
    layout: Option<&'p StoredLayout>,
}

impl<'p> Checker<'p> {
    /// The buffers that are not row-major.
    pub(super) fn stored(&mut self) -> BTreeMap<BufferId, StoredLayout> {
        let mut readers: BTreeMap<BufferId, Reader<'p>> = BTreeMap::new();
        for node in &self.plan.nodes {
            match &node.op {
                NodeOp::Kernel { kernel, args } => {
                    let Some(signature) = self.signatures.get(kernel) else { continue };
                    for arg in args {
                        let ArgumentValue::Buffer { buffer, .. } = arg.value else { continue };
                        let param = signature.param(&arg.param);
                        let layout = param.and_then(|param| param.stored.as_ref());
                        self.read_as(&mut readers, &node.name, buffer, layout);
                    }
                }
                NodeOp::AllReduce { src, dst }
                | NodeOp::AllGather { src, dst, .. }
                | NodeOp::ReduceScatter { src, dst, .. } => {
                    self.read_as(&mut readers, &node.name, *src, None);
                    self.read_as(&mut readers, &node.name, *dst, None);
                }
                NodeOp::Copy { src, dst } => {
                    self.read_as(&mut readers, &node.name, src.buffer, None);
                    self.read_as(&mut readers, &node.name, dst.buffer, None);
                }
            }
        }
        let packed =
            |(buffer, reader): (BufferId, Reader<'p>)| Some((buffer, reader.layout?.clone()));
        readers.into_iter().filter_map(packed).collect()
    }

    fn read_as(
        &mut self,
        readers: &mut BTreeMap<BufferId, Reader<'p>>,
        node: &'p str,
        buffer: BufferId,
        layout: Option<&'p StoredLayout>,
    ) {
        let described = self.buffer(buffer);
        let layout = layout.filter(|layout| !layout.is_row_major());
        if let Some(layout) = layout
            && described.elements() != Some(layout.len())
        {
            let message = format!(
                "`{}` does not have the {} elements of {layout}",
                described.name,
                layout.len()
            );
            self.error(PlanCode::Stored, node, message);
        }
        match readers.entry(buffer) {
            Entry::Vacant(place) => {
                place.insert(Reader { node, layout });
            }
            Entry::Occupied(first) => {
                let first = first.get();
                let same = match (first.layout, layout) {
                    (None, None) => true,
                    (Some(one), Some(other)) => one.same_places(other),
                    (Some(_), None) | (None, Some(_)) => false,
                };
                if !same {
                    let message = format!(
                        "`{}` is wanted as {} here, but as {} by `{}`",
                        described.name,
                        order(layout),
                        order(first.layout),
                        first.node
                    );
                    self.error(PlanCode::Stored, node, message);
                }
            }
        }
    }
}

fn order(layout: Option<&StoredLayout>) -> String {
    layout.map_or_else(|| "row-major".to_owned(), ToString::to_string)
}
