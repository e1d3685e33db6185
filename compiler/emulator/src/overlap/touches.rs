//! Who touched which elements of the buffers of a stream, and which accesses nothing orders.

use std::collections::BTreeMap;

use kernel_dsl::source::Span;
use kernel_ir::kernel::ParamId;

use super::order::Progress;
use crate::view::PAGE;

/// What is done to elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Read,
    Write,
}

impl Does {
    /// `reads`, `writes`.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Does::Read => "reads",
            Does::Write => "writes",
        }
    }
}

/// Where something was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) cta: [u32; 3],
    pub(super) param: ParamId,
    pub(super) span: Span,
}

/// A launch, before its wait or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) launch: usize,
    pub(super) has_waited: bool,
}

/// For each element of a run its last read and write, as numbers of sites from 1 on.
#[derive(Debug)]
struct Page {
    reads: [u32; PAGE],
    writes: [u32; PAGE],
}

/// Accesses of one buffer by one part, by run of elements.
type Pages = BTreeMap<usize, Box<Page>>;

/// An access of another launch that nothing orders with the one at hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clash {
    pub(super) index: usize,
    pub(super) part: Part,
    pub(super) did: Does,
    pub(super) site: Site,
}

/// The accesses of launches that may still meet others.
#[derive(Debug, Default)]
pub(super) struct Touches {
    of_buffer: BTreeMap<usize, BTreeMap<Part, Pages>>,
    sites: BTreeMap<usize, Vec<Site>>,
}

impl Touches {
    /// Notes an access of elements of a buffer.
    pub(super) fn note(
        &mut self,
        launches: &[Progress],
        (part, does): (Part, Does),
        (buffer, elements): (usize, std::ops::Range<usize>),
        site: Site,
    ) -> Result<(), Clash> {
        let parts = self.of_buffer.entry(buffer).or_default();
        for (&other, pages) in parts.iter().filter(|(other, _)| may_meet(launches, part, **other)) {
            if let Some((index, did, number)) = clash(pages, does, elements.clone()) {
                let site = self.sites[&other.launch][number as usize - 1];
                return Err(Clash { index, part: other, did, site });
            }
        }
        let sites = self.sites.entry(part.launch).or_default();
        if sites.last() != Some(&site) {
            sites.push(site);
        }
        let number = sites.len() as u32;
        let pages = parts.entry(part).or_default();
        for (page, slots) in pieces(elements) {
            let empty = || Box::new(Page { reads: [0; PAGE], writes: [0; PAGE] });
            let page = pages.entry(page).or_insert_with(empty);
            match does {
                Does::Read => page.reads[slots].fill(number),
                Does::Write => page.writes[slots].fill(number),
            }
        }
        Ok(())
    }

    /// A launch begins: what no launch from now on can meet is forgotten.
    pub(super) fn begin(&mut self, launches: &[Progress]) {
        let at_work = |one: &&Progress| one.has_begun && !one.has_ended();
        let is_needed = |launch: &usize| {
            let mut others = launches.iter().skip(launch + 1).filter(at_work);
            !launches[*launch].has_ended() || others.any(|one| one.running(false).contains(launch))
        };
        self.sites.retain(|launch, _| is_needed(launch));
        for parts in self.of_buffer.values_mut() {
            parts.retain(|part, _| is_needed(&part.launch));
        }
    }
}

/// True where the later of two parts does not know that the launch of the other one has ended.
fn may_meet(launches: &[Progress], a: Part, b: Part) -> bool {
    let (earlier, later) = if a.launch < b.launch { (a, b) } else { (b, a) };
    earlier.launch != later.launch
        && launches[later.launch].running(later.has_waited).contains(&earlier.launch)
}

/// Pages of a run of elements, with the places in them.
fn pieces(
    elements: std::ops::Range<usize>,
) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let pages = elements.start / PAGE..elements.end.div_ceil(PAGE);
    pages.map(move |page| {
        let first = page * PAGE;
        let (from, to) = (elements.start.max(first), elements.end.min(first + PAGE));
        (page, from - first..to.max(from) - first)
    })
}

/// The first element that was touched so that the access clashes with it.
fn clash(
    pages: &Pages,
    does: Does,
    elements: std::ops::Range<usize>,
) -> Option<(usize, Does, u32)> {
    for (number, slots) in pieces(elements) {
        let Some(page) = pages.get(&number) else { continue };
        for slot in slots {
            let index = number * PAGE + slot;
            match (page.writes[slot], page.reads[slot], does) {
                (0, 0, _) | (0, _, Does::Read) => {}
                (0, read, Does::Write) => return Some((index, Does::Read, read)),
                (write, _, _) => return Some((index, Does::Write, write)),
            }
        }
    }
    None
}
