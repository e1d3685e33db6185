//! Which kernels are timed against each other, and the buffers that they share.

use std::collections::BTreeMap;

use kernel_abi::Access;
use kernel_abi::bundle::{Bundle, KernelRef};
use kernel_runtime::RuntimeError;

use crate::arguments::Arguments;
use crate::data::{Need, Scalars, need, scalars};

/// A kernel of a chain.
#[derive(Debug, Clone)]
pub(crate) struct Link<'b> {
    pub(crate) kernel: KernelRef<'b>,
    pub(crate) scalars: Scalars,
    /// Parameters and the numbers of their buffers in the group.
    pub(crate) buffers: Vec<(&'b str, usize)>,
}

/// Kernels that follow each other; most often one.
#[derive(Debug, Clone)]
pub(crate) struct Contender<'b> {
    pub(crate) name: String,
    pub(crate) links: Vec<Link<'b>>,
    /// Bytes that one launch of all its kernels reads and writes.
    pub(crate) bytes: u64,
}

/// Contenders that take turns, on the same buffers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group<'b> {
    pub(crate) contenders: Vec<Contender<'b>>,
    pub(crate) needs: Vec<Need>,
}

impl Group<'_> {
    /// Bytes of all buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.needs.iter().fold(0, |all, need| all.saturating_add(need.bytes()))
    }
}

fn no_kernel(kernel: &str, target: &str, why: String) -> RuntimeError {
    RuntimeError::NoKernel { kernel: format!("`{kernel}`"), device: target.to_owned(), why }
}

/// The groups that the command line asks for, of the kernels for one target.
///
/// # Errors
/// A kernel is not there, or a scalar of one has no value.
pub(crate) fn groups<'b>(
    bundle: &'b Bundle,
    target: &str,
    all: &Arguments,
) -> Result<Vec<Group<'b>>, RuntimeError> {
    if all.chains.is_empty() {
        return variants(bundle, target, all);
    }
    let mut group = Group::default();
    for names in &all.chains {
        let kernels = names.iter().map(|name| {
            bundle.artefact(name, target).ok_or_else(|| {
                let count = bundle.kernels().filter(|k| k.head().target == target).count();
                no_kernel(name, target, format!("the bundle has {count} others"))
            })
        });
        let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
        group.add(names.join(","), &kernels, all)?;
    }
    check_names(std::slice::from_ref(&group), all)?;
    Ok(vec![group])
}

/// Each kernel alone; those of one name and one set of parameters are a group.
fn variants<'b>(
    bundle: &'b Bundle,
    target: &str,
    all: &Arguments,
) -> Result<Vec<Group<'b>>, RuntimeError> {
    let mut groups: Vec<Group<'b>> = Vec::new();
    for kernel in bundle.kernels().filter(|kernel| kernel.head().target == target) {
        let head = kernel.head();
        let is_wanted = |word: &String| head.name.contains(word.as_str());
        if !all.words.is_empty() && !all.words.iter().any(is_wanted) {
            continue;
        }
        let is_rival = |group: &Group<'_>| {
            group.contenders.first().is_some_and(|first| {
                let other = first.links[0].kernel.head();
                (&other.file, &other.kernel, &other.signature)
                    == (&head.file, &head.kernel, &head.signature)
            })
        };
        let at = groups.iter().position(is_rival).unwrap_or_else(|| {
            groups.push(Group::default());
            groups.len() - 1
        });
        groups[at].add(head.name.clone(), &[kernel], all)?;
    }
    if groups.is_empty() {
        let words = all.words.join("`, `");
        return Err(no_kernel(&words, target, "nothing in the bundle has that name".to_owned()));
    }
    check_names(&groups, all)?;
    Ok(groups)
}

/// Refuses names on the command line that no kernel has.
fn check_names(groups: &[Group<'_>], all: &Arguments) -> Result<(), RuntimeError> {
    let is_buffer =
        |name: &String| groups.iter().any(|group| group.needs.iter().any(|n| n.name == *name));
    let links = || groups.iter().flat_map(|group| &group.contenders).flat_map(|c| &c.links);
    let is_scalar = |name: &String| links().any(|link| link.scalars.contains_key(name));
    let buffers = all.fills.keys().chain(all.touched.keys()).chain(&all.zeros);
    let lost = buffers
        .map(|name| (name, is_buffer(name), "buffer"))
        .chain(all.scalars.keys().map(|name| (name, is_scalar(name), "scalar")))
        .find(|(_, is_there, _)| !is_there);
    match lost {
        None => Ok(()),
        Some((name, _, kind)) => Err(RuntimeError::Arguments {
            kernel: "the command line".to_owned(),
            fault: format!("no kernel that is timed has a {kind} `{name}`"),
        }),
    }
}

impl<'b> Group<'b> {
    fn add(
        &mut self,
        name: String,
        kernels: &[KernelRef<'b>],
        all: &Arguments,
    ) -> Result<(), RuntimeError> {
        let mut contender = Contender { name, links: Vec::new(), bytes: 0 };
        for &kernel in kernels {
            let (name, signature) = (&kernel.head().name, kernel.signature());
            // A scalar of another kernel is given as well.
            let scalars = scalars(name, signature, &all.scalars)?;
            let mut buffers = Vec::new();
            for param in &signature.params {
                let Some(need) = need(name, param, &scalars, &all.fills)? else { continue };
                contender.bytes = contender.bytes.saturating_add(traffic(param.access, &need, all));
                buffers.push((param.name.as_str(), self.place(need, param.access)));
            }
            contender.links.push(Link { kernel, scalars, buffers });
        }
        self.contenders.push(contender);
        Ok(())
    }

    /// The number of the buffer: that of the same name, type and size, or a new one. What is read says what it holds.
    fn place(&mut self, need: Need, access: Access) -> usize {
        let is_same = |other: &Need| {
            (&other.name, other.dtype, other.elements) == (&need.name, need.dtype, need.elements)
        };
        match self.needs.iter().position(is_same) {
            None => {
                self.needs.push(need);
                self.needs.len() - 1
            }
            Some(at) => {
                if matches!(access, Access::Static | Access::Input | Access::Inout | Access::Peer) {
                    self.needs[at].content = need.content;
                }
                at
            }
        }
    }
}

/// Bytes that a kernel reads and writes of a buffer.
fn traffic(access: Access, need: &Need, all: &Arguments) -> u64 {
    let touched: &BTreeMap<String, u64> = &all.touched;
    let elements = touched.get(&need.name).map_or(need.elements, |&n| n.min(need.elements));
    let bytes = Need { elements, ..need.clone() }.bytes();
    match access {
        Access::Static | Access::Input | Access::Output | Access::Peer => bytes,
        Access::Inout => bytes.saturating_mul(2),
        // What a launch leaves for itself stays in the second-level cache.
        Access::Scratch | Access::Multicast | Access::Scalar => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static BUNDLE: LazyLock<Bundle> = LazyLock::new(crate::testing::bundle);

    fn of(text: &str) -> Result<Vec<Group<'static>>, String> {
        let words = format!("--bundle b {text}");
        let all = Arguments::parse(words.split_whitespace().map(str::to_owned))?;
        groups(&BUNDLE, "sm_90a", &all).map_err(|error| format!("{}: {error}", error.code().name()))
    }

    #[test]
    fn variants_with_the_same_parameters_are_rivals() {
        let groups = of("--scalar n=3").unwrap();
        let names: Vec<Vec<&str>> = groups
            .iter()
            .map(|group| group.contenders.iter().map(|c| c.name.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["first"], vec!["gemv", "gemv-ROWS4"], vec!["second"]]);
        // w: 64 x 32 of bf16, x: 32 of f32, y: 64 of f32.
        assert_eq!(groups[1].bytes(), 64 * 32 * 2 + 32 * 4 + 64 * 4);
        assert_eq!(groups[1].contenders[0].bytes, groups[1].bytes());
        let groups = of("--kernel ROWS --touched w=64").unwrap();
        assert_eq!((groups.len(), groups[0].contenders[0].bytes), (1, 128 + 128 + 256));
    }

    #[test]
    fn chains_share_buffers_by_name_type_and_size() {
        let groups = of("--chain first,second --chain gemv --scalar n=3").unwrap();
        let [group] = groups.as_slice() else { panic!("one group") };
        assert_eq!(group.contenders[0].links.len(), 2);
        let (first, second) = (&group.contenders[0].links[0], &group.contenders[0].links[1]);
        let number = |link: &Link<'_>, name: &str| {
            link.buffers.iter().find(|(param, _)| *param == name).map(|(_, at)| *at)
        };
        assert_eq!(number(first, "x"), number(second, "x"));
        assert_eq!(number(first, "x"), number(&group.contenders[1].links[0], "x"));
        assert_ne!(number(first, "done"), number(second, "done"), "they have other sizes");
    }

    #[test]
    fn what_is_not_there_is_refused_with_a_code() {
        for (text, reason) in [
            (
                "--chain first,third",
                "R0302: there is no kernel `third` for sm_90a; the bundle has 4 others",
            ),
            (
                "--kernel nothing",
                "R0302: there is no kernel `nothing` for sm_90a; nothing in the bundle has that name",
            ),
            ("--chain second", "R0305: second: no value is known for `n`: --scalar n=VALUE"),
            (
                "--kernel gemv --fill z=1",
                "R0305: the command line: no kernel that is timed has a buffer `z`",
            ),
            (
                "--kernel gemv --scalar n=1",
                "R0305: the command line: no kernel that is timed has a scalar `n`",
            ),
        ] {
            assert_eq!(of(text).unwrap_err(), reason);
        }
    }
}
