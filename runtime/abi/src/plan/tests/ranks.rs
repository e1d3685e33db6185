//! Kernels over several ranks, the words of launches, and rows that are left out.

use super::*;
use crate::Access::{Inout, Input, Output, Peer, Scalar as Value};

/// `push(input x[4], output y[4], peer inbox[2, 2, 4], peer ready[1, 2], inout seq[1], rank)` over two ranks, `half`, which
/// is another kernel of the same parameters, `count(inout done[1], output y[4])`, `fill(output y[4], rows)`,
/// `part(input x[4], output y[4], rows)`, and `scale`.
fn kernels() -> BTreeMap<KernelKey, Signature> {
    let mut all = signatures();
    let words = |name: &str, access, shape: &[u64], words| ParamSpec {
        dtype: DType::U32,
        words: Some(words),
        ..param(name, access, shape)
    };
    let scalar = |name: &str| ParamSpec { dtype: DType::I32, ..param(name, Value, &[]) };
    let push = vec![
        param("x", Input, &[4]),
        param("y", Output, &[4]),
        param("inbox", Peer, &[2, 2, 4]),
        words("ready", Peer, &[1, 2], WordKind::Flag),
        words("seq", Inout, &[1], WordKind::Epoch),
        scalar("rank"),
    ];
    let push = Signature { world: Some(2), ..Signature::new(push, true) };
    all.insert(key("push"), push.clone());
    all.insert(key("half"), push);
    let count = vec![words("done", Inout, &[1], WordKind::Counter), param("y", Output, &[4])];
    all.insert(key("count"), Signature::new(count, true));
    let below = |access, name: &str| {
        let mut rows = param(name, access, &[4]);
        rows.touches.rows = Some("rows".into());
        rows
    };
    let fill = vec![below(Output, "y"), scalar("rows")];
    all.insert(key("fill"), Signature::new(fill, true));
    let part = vec![below(Input, "x"), param("y", Output, &[4]), scalar("rows")];
    all.insert(key("part"), Signature::new(part, true));
    all
}

struct Ranks {
    builder: PlanBuilder,
    x: BufferId,
    y: BufferId,
    inbox: BufferId,
    ready: BufferId,
    seq: BufferId,
}

impl Ranks {
    fn of(ranks: u32, shape: &[u64], seq: BufferRole) -> Ranks {
        let mut builder = PlanBuilder::new(ranks);
        let x = builder.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
        let y = builder.buffer("y", DType::F32, &[4], BufferRole::Step);
        let inbox = builder.buffer("inbox", DType::F32, shape, BufferRole::Symmetric);
        let ready = builder.buffer("ready", DType::U32, &[1, 2], BufferRole::Symmetric);
        let seq = builder.buffer("seq", DType::U32, &[1], seq);
        Ranks { builder, x, y, inbox, ready, seq }
    }

    fn new() -> Ranks {
        Ranks::of(2, &[2, 2, 4], BufferRole::State)
    }

    fn buffer(&mut self, name: &str, dtype: DType, shape: &[u64], role: BufferRole) -> BufferId {
        self.builder.buffer(name, dtype, shape, role)
    }

    fn begin(
        &mut self,
        name: &str,
        kernel: &str,
        seq: BufferId,
    ) -> crate::plan::builder::KernelNode<'_> {
        let Ranks { x, y, inbox, ready, .. } = *self;
        self.builder
            .kernel(name, "k.tile", kernel, &[])
            .read("x", x)
            .write("y", y)
            .arg("inbox", Peer, inbox)
            .arg("ready", Peer, ready)
            .update("seq", seq)
    }

    fn push(&mut self, name: &str, kernel: &str) {
        let seq = self.seq;
        self.begin(name, kernel, seq).of_ranks().add();
    }

    fn found(self) -> Vec<String> {
        match self.builder.finish().check(kernels()) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        }
    }
}

fn one(found: Vec<String>, begin: &str, part: &str) {
    assert!(
        found.len() == 1 && found[0].starts_with(begin) && found[0].contains(part),
        "{found:?}"
    );
}

#[test]
fn a_kernel_over_ranks_goes_on_from_launch_to_launch() {
    let mut r = Ranks::new();
    r.push("first", "push");
    r.push("second", "push");
    assert_eq!(r.found(), [""; 0]);
}

#[test]
fn a_kernel_is_for_as_many_ranks_as_the_plan_has_and_knows_its_own() {
    for ranks in [1, 3] {
        let mut r = Ranks::of(ranks, &[2, 2, 4], BufferRole::State);
        r.push("first", "push");
        one(r.found(), "P0113: first: push<> is made for 2 ranks, and the plan has", "");
    }
    for numbers in [vec![1, 0], vec![0, 0], vec![0, 2]] {
        let mut r = Ranks::new();
        let seq = r.seq;
        let numbers = numbers.into_iter().map(Scalar::I32).collect();
        r.begin("first", "push", seq).scalars("rank", numbers).add();
        one(r.found(), "P0113: first: `rank` of push<>", "");
    }
    let mut r = Ranks::new();
    let seq = r.seq;
    r.begin("first", "push", seq).scalar("rank", Scalar::I32(0)).add();
    one(r.found(), "P0113: first: `rank` of push<>", "");
}

#[test]
fn all_agree_on_the_shape_of_memory_of_ranks() {
    // As many elements, but a ring of 4 slots.
    let mut r = Ranks::of(2, &[4, 1, 4], BufferRole::State);
    r.push("first", "push");
    one(
        r.found(),
        "P0113: first: `inbox` of push<> is [2, 2, 4]",
        "`inbox` is [4, 1, 4] on every rank",
    );
}

#[test]
fn all_agree_on_the_rows_of_memory_of_ranks() {
    let mut kernels = kernels();
    let rows = || ExtentSpec::Scalar("rows".to_owned());
    let push = kernels.get_mut(&key("push")).unwrap();
    push.params[2].shape = vec![ExtentSpec::Const(2), rows(), ExtentSpec::Const(4)];
    push.params.push(ParamSpec { dtype: DType::I32, ..param("rows", Value, &[]) });
    let found = |shape: &[u64], rows: [i32; 2]| {
        let mut r = Ranks::of(2, shape, BufferRole::State);
        let seq = r.seq;
        let numbers = [0, 1].map(Scalar::I32).to_vec();
        let rows = rows.map(Scalar::I32).to_vec();
        r.begin("first", "push", seq).scalars("rank", numbers).scalars("rows", rows).add();
        let checked = r.builder.finish().check(kernels.clone());
        checked.err().unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(found(&[2, 2, 4], [2, 2]), [""; 0]);
    // On one of them fewer rows, or on both.
    for rows in [[2, 1], [1, 1]] {
        one(found(&[2, 2, 4], rows), "P0102: first: `inbox` of push<> is peer", "");
    }
    // As many elements in another ring.
    one(found(&[4, 1, 4], [2, 2]), "P0113: first: `inbox` of push<> is [2, 2, 4]", "");
}

#[test]
fn memory_of_ranks_is_touched_by_kernels_that_say_so() {
    let mut r = Ranks::new();
    let (ready, inbox, y) = (r.ready, r.inbox, r.y);
    let plain = r.buffer("plain", DType::F32, &[2, 2, 4], BufferRole::State);
    let seq = r.seq;
    let x = r.x;
    r.builder
        .kernel("first", "k.tile", "push", &[])
        .read("x", x)
        .write("y", y)
        .arg("inbox", Peer, plain)
        .arg("ready", Peer, ready)
        .update("seq", seq)
        .of_ranks()
        .add();
    one(r.found(), "P0113: first: `inbox` of push<> is memory of other ranks too", "`Symmetric`");
    let mut r = Ranks::new();
    r.push("first", "push");
    let region = |buffer| Region { buffer, start: 0, len: 4 };
    r.builder.copy("reads it", region(inbox), region(y));
    one(r.found(), "P0113: reads it: `inbox` is memory of ranks", "");
    let mut r = Ranks::new();
    let (w, small) = (r.buffer("w", DType::F32, &[4], BufferRole::Weight), r.y);
    let inbox = r.buffer("small", DType::F32, &[4], BufferRole::Symmetric);
    let node = r.builder.kernel("reads it", "k.tile", "scale", &[]).read("w", w).read("x", inbox);
    node.write("y", small).scalar("by", Scalar::F32(1.0)).add();
    one(r.found(), "P0113: reads it: `small` is memory of ranks, and `x` of scale<> is input", "");
}

#[test]
fn words_start_at_zero() {
    let host = BufferRole::Host { promise: None };
    let mut r = Ranks::of(2, &[2, 2, 4], host);
    r.push("first", "push");
    let found = r.found();
    assert!(
        found.iter().any(|text| text.starts_with("P0114: first: `seq` is an epoch here")),
        "{found:?}"
    );
    let count = |role| {
        let mut r = Ranks::new();
        let done = r.buffer("done", DType::U32, &[1], role);
        let y = r.y;
        r.builder.kernel("counts", "k.tile", "count", &[]).update("done", done).write("y", y).add();
        r.found()
    };
    assert_eq!(count(BufferRole::State), [""; 0]);
    let found = count(BufferRole::Step);
    assert!(
        found.iter().any(|text| text.starts_with("P0114: counts: `done` is a counter")),
        "{found:?}"
    );
}

#[test]
fn words_are_of_one_kind() {
    let mut r = Ranks::new();
    r.push("first", "push");
    let (seq, y) = (r.seq, r.y);
    r.builder.kernel("counts", "k.tile", "count", &[]).update("done", seq).write("y", y).add();
    one(r.found(), "P0114: counts: `seq` is a counter here and an epoch of `first`", "");
    let mut r = Ranks::new();
    r.push("first", "push");
    let other = r.buffer("other", DType::U32, &[1], BufferRole::State);
    let region = |buffer| Region { buffer, start: 0, len: 1 };
    r.builder.copy("sets it", region(other), region(seq));
    one(r.found(), "P0114: sets it: `seq` is data here and an epoch of `first`", "");
}

#[test]
fn words_that_go_on_are_of_one_kernel_with_all_that_belongs_to_them() {
    let mut r = Ranks::new();
    r.push("first", "push");
    r.push("second", "half");
    let found = r.found();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|text| text.starts_with("P0114: second: ")), "{found:?}");
    assert!(found[0].contains("half<> here, push<> there"), "{found:?}");
    // Another epoch with the same flags would count from zero while those are further.
    let mut r = Ranks::new();
    r.push("first", "push");
    let other = r.buffer("other", DType::U32, &[1], BufferRole::State);
    r.begin("second", "push", other).of_ranks().add();
    let found = r.found();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("`seq` is `other` here, `seq` there"), "{found:?}");
}

/// `fill` writes the rows below `written` of `y`, and `reader` reads them.
fn rows(written: &[i32], reader: impl Fn(&mut Ranks)) -> Vec<String> {
    let mut r = Ranks::new();
    let y = r.y;
    let node = r.builder.kernel("fills", "k.tile", "fill", &[]).write("y", y);
    node.scalars("rows", written.iter().map(|&rows| Scalar::I32(rows)).collect()).add();
    reader(&mut r);
    r.found()
}

#[test]
fn rows_that_the_writer_leaves_out_are_not_read() {
    let sum = |r: &mut Ranks| {
        r.builder.all_reduce("sum", r.y, r.y);
    };
    assert_eq!(rows(&[4, 4], sum), [""; 0]);
    assert_eq!(rows(&[9, 4], sum), [""; 0]);
    let refused = "P0115: sum: element 3 of `y` is read, but `fills` writes no more than the rows below its `rows`";
    one(rows(&[4, 3], sum), refused, "bound the reader by the same scalar");
    one(rows(&[-1, 4], sum), "P0115: sum: element 0", "");
    // A reader that leaves out as much.
    let part = |below: Vec<i32>| {
        move |r: &mut Ranks| {
            let z = r.builder.buffer("z", DType::F32, &[4], BufferRole::Step);
            let node =
                r.builder.kernel("reads", "k.tile", "part", &[]).read("x", r.y).write("y", z);
            node.scalars("rows", below.iter().map(|&rows| Scalar::I32(rows)).collect()).add();
        }
    };
    assert_eq!(rows(&[3, 3], part(vec![3, 2])), [""; 0]);
    one(rows(&[3, 3], part(vec![3, 4])), "P0115: reads: element 3", "");
    one(rows(&[3, 2], part(vec![3, 3])), "P0115: reads: element 2", "");
}

#[test]
fn ranks_that_work_together_bound_rows_alike() {
    let mut kernels = kernels();
    let push = kernels.get_mut(&key("push")).unwrap();
    push.params[0].touches.rows = Some("rows".into());
    push.params.push(ParamSpec { dtype: DType::I32, ..param("rows", Value, &[]) });
    let with = |values: [i32; 2]| {
        let mut r = Ranks::new();
        let seq = r.seq;
        let node = r.begin("first", "push", seq).of_ranks();
        node.scalars("rows", values.map(Scalar::I32).to_vec()).add();
        r.builder.finish().check(kernels.clone())
    };
    assert!(with([3, 3]).is_ok());
    let errors = with([3, 4]).unwrap_err();
    assert_eq!((errors.len(), errors[0].code), (1, PlanCode::Rows));
    assert!(
        errors[0].message.contains("`x` end at 3 on one rank and at 4 on another"),
        "{errors:?}"
    );
}

#[test]
fn hostile_signatures_of_kernels_over_ranks_are_errors() {
    let mut kernels = kernels();
    for world in [None, Some(0), Some(u32::MAX)] {
        kernels.get_mut(&key("push")).unwrap().world = world;
        let mut r = Ranks::new();
        r.push("first", "push");
        let errors = r.builder.finish().check(kernels.clone()).unwrap_err();
        assert!(errors.iter().any(|error| error.code == PlanCode::Ranks), "{errors:?}");
    }
    kernels.get_mut(&key("fill")).unwrap().params[0].touches.rows = Some("nothing".into());
    let mut r = Ranks::new();
    let y = r.y;
    let node = r.builder.kernel("fills", "k.tile", "fill", &[]).write("y", y);
    node.scalar("rows", Scalar::I32(i32::MAX)).add();
    let errors = r.builder.finish().check(kernels).unwrap_err();
    assert_eq!(errors[0].code, PlanCode::Argument);
}
