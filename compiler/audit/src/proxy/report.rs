//! Findings of the rules of proxies.

use super::{unfenced, unfinished};
use crate::code::Code;
use crate::report::Item;
use crate::rules::{Case, Judgement, name_of_param, spot};

/// Adds what is wrong with the fences and the waits of asynchronous copies.
pub(crate) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    let found = unfenced(case.kernel, case.facts);
    for unfenced in found.unfenced {
        let (what, fence) = match unfenced.is_global {
            true => ("global memory", "fence.proxy.async.global"),
            false => ("shared memory", "fence.proxy.async.shared::cta"),
        };
        let owners = case.facts.reads.iter().find(|read| read.node == unfenced.read);
        let owner = owners.filter(|_| unfenced.is_global).and_then(|r| r.owners.params.first());
        let mut item = item(case, Code::Unfenced, unfenced.read);
        item.param = owner.and_then(|&param| name_of_param(case, param));
        item.message = format!(
            "the asynchronous proxy reads {what} that threads stored ({}), with no fence of the proxy between",
            place(case, unfenced.write)
        );
        item.help = format!(
            "put `{fence}` behind the stores, ahead of the barrier, in every thread that stores"
        );
        judgement.findings.push(item);
    }
    for unfinished in unfinished(case.kernel, case.facts) {
        let mut item = item(case, Code::Unfinished, unfinished.signal);
        item.wait = unfinished.wait.and_then(|node| spot(case, node));
        item.message = format!(
            "others are told of an asynchronous store ({}) that may not be complete",
            place(case, unfinished.store)
        );
        item.help =
            "wait by `cp.async.bulk.wait_group`; with `.read` it waits for the source alone"
                .to_owned();
        judgement.findings.push(item);
    }
    if found.is_partial {
        judgement.assumed.push(format!(
            "`{}`: asynchronous copies and stores at addresses that are not followed have the fences that they need",
            case.kernel.name
        ));
    }
}

fn item(case: &Case<'_>, code: Code, node: u32) -> Item {
    Item {
        code,
        kernel: case.kernel.name.clone(),
        param: None,
        ptx: spot(case, node),
        wait: None,
        sass: None,
        message: String::new(),
        help: String::new(),
    }
}

fn place(case: &Case<'_>, node: u32) -> String {
    match spot(case, node) {
        Some(spot) => format!("line {}: `{}`", spot.line, spot.text),
        None => "in the kernel".to_owned(),
    }
}
