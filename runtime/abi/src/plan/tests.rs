mod overlap;
mod ranks;

use std::collections::BTreeMap;

use super::*;

fn param(name: &str, access: crate::Access, shape: &[u64]) -> ParamSpec {
    let shape = shape.iter().map(|&e| ExtentSpec::Const(e)).collect();
    ParamSpec::new(name, access, DType::F32, shape)
}

fn key(kernel: &str) -> KernelKey {
    KernelKey { file: "k.tile".into(), kernel: kernel.into(), bindings: BTreeMap::new() }
}

/// `scale(static w[4], input x[4], output y[4], scalar by)` and
/// `pick(input id[2] in 0..rows, settled input s[4], output out[2] in 0..3, scalar rows)`.
fn signatures() -> BTreeMap<KernelKey, Signature> {
    use crate::Access::{Input, Output, Scalar, Static};
    let scale = vec![
        param("w", Static, &[4]),
        param("x", Input, &[4]),
        param("y", Output, &[4]),
        param("by", Scalar, &[]),
    ];
    let contract = |hi| Some(ContractSpec { lo: 0, hi, distinct: false, except: None });
    let pick = vec![
        ParamSpec {
            dtype: DType::I32,
            contract: contract(UpperBound::Scalar("rows".into(), 0)),
            ..param("id", Input, &[2])
        },
        ParamSpec { settled: true, ..param("s", Input, &[4]) },
        ParamSpec {
            dtype: DType::I32,
            contract: contract(UpperBound::Const(3)),
            ..param("out", Output, &[2])
        },
        ParamSpec { dtype: DType::I32, ..param("rows", Scalar, &[]) },
    ];
    let signature = |params| Signature::new(params, true);
    [(key("scale"), signature(scale)), (key("pick"), signature(pick))].into()
}

/// A plan that holds: the buffers and nodes of each test.
struct Sample {
    builder: PlanBuilder,
    w: BufferId,
    x: BufferId,
    y: BufferId,
    ids: BufferId,
    state: BufferId,
    out: BufferId,
}

impl Sample {
    fn new() -> Sample {
        let mut builder = PlanBuilder::new(2);
        let host = |hi| BufferRole::Host {
            promise: Some(Promise { lo: 0, hi, distinct: false, except: None }),
        };
        let w = builder.buffer("w", DType::F32, &[4], BufferRole::Weight);
        let x = builder.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
        let y = builder.buffer("y", DType::F32, &[4], BufferRole::Step);
        let ids = builder.buffer("ids", DType::I32, &[2], host(8));
        let state = builder.buffer("state", DType::F32, &[4], BufferRole::State);
        let out = builder.buffer("out", DType::I32, &[2], BufferRole::Step);
        Sample { builder, w, x, y, ids, state, out }
    }

    fn scale(&mut self, name: &str, x: BufferId, y: BufferId) -> NodeId {
        let w = self.w;
        self.builder
            .kernel(name, "k.tile", "scale", &[])
            .read("w", w)
            .read("x", x)
            .write("y", y)
            .scalar("by", Scalar::F32(2.0))
            .add()
    }

    fn pick(&mut self, ids: BufferId, rows: i32) -> NodeId {
        self.pick_into("pick", ids, self.out, &[rows])
    }

    /// `rows` for all ranks, or for each.
    fn pick_into(&mut self, name: &str, ids: BufferId, out: BufferId, rows: &[i32]) -> NodeId {
        let node = self
            .builder
            .kernel(name, "k.tile", "pick", &[])
            .read("id", ids)
            .read("s", self.state)
            .write("out", out);
        match rows {
            [rows] => node.scalar("rows", Scalar::I32(*rows)).add(),
            _ => node.scalars("rows", rows.iter().map(|&r| Scalar::I32(r)).collect()).add(),
        }
    }

    fn codes(self) -> Vec<&'static str> {
        codes(self.builder.finish())
    }
}

fn codes(plan: Plan) -> Vec<&'static str> {
    match plan.check(signatures()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(|e| e.code.name()).collect(),
    }
}

#[test]
fn a_plan_that_holds_is_accepted() {
    let mut s = Sample::new();
    let (x, y, ids) = (s.x, s.y, s.ids);
    s.scale("first", x, y);
    s.builder.all_reduce("sum", y, y);
    s.pick(ids, 8);
    let plan = s.builder.finish().check(signatures()).unwrap();
    assert_eq!(plan.nodes[1].after, [NodeId(0)]);
    assert!(plan.signature(&key("scale")).param("w").is_some());
    assert_eq!(plan.kernels().len(), 2);
}

#[test]
fn structure_is_checked() {
    assert_eq!(codes(Plan { ranks: 0, ..Plan::default() }), ["P0101"]);
    let mut s = Sample::new();
    let (x, y) = (s.x, s.y);
    s.scale("one", x, y);
    s.scale("one", x, y);
    s.builder.buffer("x", DType::F32, &[u64::MAX, 2], BufferRole::Step);
    assert_eq!(s.codes(), ["P0101", "P0101", "P0101"]);
    let mut plan = Sample::new().builder.finish();
    let region = |start| Region { buffer: BufferId(1), start, len: 2 };
    let op = NodeOp::Copy { src: region(3), dst: region(u64::MAX) };
    plan.nodes.push(Node { name: "copy".into(), op, after: vec![NodeId(0)] });
    assert_eq!(codes(plan), ["P0101", "P0101"]);
}

#[test]
fn arguments_are_checked() {
    let mut s = Sample::new();
    let (w, y, ids) = (s.w, s.y, s.ids);
    // `x` of another type; `by` missing; `z` unknown.
    s.builder
        .kernel("bad", "k.tile", "scale", &[])
        .read("w", w)
        .read("x", ids)
        .write("y", y)
        .read("z", w)
        .add();
    s.builder.kernel("none", "k.tile", "unknown", &[]).add();
    assert_eq!(s.codes(), ["P0102"; 4]);
    let mut s = Sample::new();
    let (w, x, y) = (s.w, s.x, s.y);
    s.builder
        .kernel("ranks", "k.tile", "scale", &[])
        .read("w", w)
        .read("x", x)
        .write("y", y)
        .scalars("by", vec![Scalar::F32(1.0)])
        .add();
    assert_eq!(s.codes(), ["P0102"]);
}

#[test]
fn static_data_is_never_written() {
    let mut s = Sample::new();
    let (w, x, y) = (s.w, s.x, s.y);
    s.scale("writes a weight", x, w);
    assert_eq!(s.codes(), ["P0105"]);
    let mut s = Sample::new();
    s.builder.all_reduce("writes a weight", w, w);
    assert_eq!(s.codes(), ["P0103"]);
    let mut s = Sample::new();
    s.scale("first", x, y);
    s.builder
        .kernel("static activation", "k.tile", "scale", &[])
        .read("w", y)
        .read("x", x)
        .write("y", s.state)
        .scalar("by", Scalar::F32(2.0))
        .add();
    assert_eq!(s.codes(), ["P0103"]);
}

#[test]
fn every_read_comes_after_its_write() {
    let mut s = Sample::new();
    let (y, state) = (s.y, s.state);
    s.scale("reads nothing", y, state);
    assert_eq!(s.codes(), ["P0104"]);
    // Half of it is written.
    let mut s = Sample::new();
    let half = |buffer, start| Region { buffer, start, len: 2 };
    s.builder.copy("half", half(s.x, 0), half(s.y, 0));
    s.scale("reads all", y, state);
    assert_eq!(s.codes(), ["P0104"]);
    let mut s = Sample::new();
    s.builder.copy("one half", half(s.x, 0), half(s.y, 0));
    s.builder.copy("the other", half(s.x, 2), half(s.y, 2));
    s.scale("reads all", y, state);
    assert_eq!(s.codes(), [""; 0]);
}

#[test]
fn accesses_without_an_order_are_races() {
    let mut s = Sample::new();
    let (x, y, state) = (s.x, s.y, s.state);
    s.scale("writes", x, y);
    s.scale("reads", y, state);
    let mut plan = s.builder.finish();
    plan.nodes[1].after.clear();
    assert_eq!(codes(plan), ["P0105", "P0104"]);
}

#[test]
fn contracts_are_met_by_promises() {
    let mut s = Sample::new();
    let ids = s.ids;
    s.pick(ids, 7);
    assert_eq!(s.codes(), ["P0106"]);
    // What a kernel promises of its output serves the next one.
    let mut s = Sample::new();
    let (ids, out) = (s.ids, s.out);
    s.pick(ids, 8);
    let other = s.builder.buffer("other", DType::I32, &[2], BufferRole::Step);
    s.pick_into("again", out, other, &[3]);
    assert_eq!(s.codes(), [""; 0]);
}

#[test]
fn settled_buffers_are_not_written_by_the_launch_before() {
    let mut s = Sample::new();
    let (x, y, state, ids) = (s.x, s.y, s.state, s.ids);
    s.scale("writes the state", x, state);
    s.pick(ids, 8);
    assert_eq!(s.codes(), ["P0107"]);
    let mut s = Sample::new();
    s.scale("writes the state", x, state);
    s.scale("between", x, y);
    s.pick(ids, 8);
    assert_eq!(s.codes(), [""; 0]);
    // The last launch of the step before is the one right before the first.
    let mut s = Sample::new();
    s.pick(ids, 8);
    s.scale("writes the state", x, state);
    assert_eq!(s.codes(), ["P0107"]);
    // A kernel that does not start early sees all that earlier ones wrote.
    let mut s = Sample::new();
    s.scale("writes the state", x, state);
    s.pick(ids, 8);
    let mut signatures = signatures();
    for signature in signatures.values_mut() {
        signature.starts_early = false;
    }
    assert!(s.builder.finish().check(signatures).is_ok());
}

#[test]
fn bounds_hold_on_every_rank() {
    // One rank needs ids below 7.
    let mut s = Sample::new();
    let (out, ids) = (s.out, s.ids);
    s.pick_into("pick", ids, out, &[8, 7]);
    assert_eq!(s.codes(), ["P0106"]);
    // Extents must be the same on all.
    let mut signatures = signatures();
    let pick = signatures.get_mut(&key("pick")).unwrap();
    pick.params[0].shape = vec![ExtentSpec::Scalar("rows".into())];
    pick.params[0].contract = None;
    let two = |a, b| {
        let mut s = Sample::new();
        let (out, ids) = (s.out, s.ids);
        s.pick_into("pick", ids, out, &[a, b]);
        s.builder.finish().check(signatures.clone())
    };
    assert!(two(2, 2).is_ok());
    assert_eq!(two(2, 4).unwrap_err()[0].code, PlanCode::Argument);
}

#[test]
fn a_state_holds_what_any_node_of_an_earlier_step_wrote() {
    let mut s = Sample::new();
    let (x, y, out) = (s.x, s.y, s.out);
    let kept = s.builder.buffer("kept", DType::I32, &[2], BufferRole::State);
    let other = s.builder.buffer("other", DType::I32, &[2], BufferRole::Host { promise: None });
    s.pick_into("reads", kept, out, &[8]);
    s.scale("between", x, y);
    let region = |buffer| Region { buffer, start: 0, len: 2 };
    // Of the first step it would be zero.
    s.builder.copy("writes anything later", region(other), region(kept));
    assert_eq!(s.codes(), ["P0106"]);
}

#[test]
fn prefixes_are_of_what_is_read_and_inside() {
    let mut s = Sample::new();
    let (w, x, y) = (s.w, s.x, s.y);
    s.builder
        .kernel("long", "k.tile", "scale", &[])
        .read("w", w)
        .read_prefix("x", x, 5)
        .write("y", y)
        .scalar("by", Scalar::F32(2.0))
        .add();
    assert_eq!(s.codes(), ["P0102"]);
    let mut s = Sample::new();
    s.scale("first", x, y);
    let mut plan = s.builder.finish();
    if let NodeOp::Kernel { args, .. } = &mut plan.nodes[0].op {
        args[2].value = ArgumentValue::Buffer { buffer: y, prefix: Some(0) };
    }
    assert_eq!(codes(plan), ["P0102"]);
}

#[test]
fn scratch_memory_holds_nothing_for_others() {
    let mut s = Sample::new();
    let (x, y, state) = (s.x, s.y, s.state);
    s.scale("leaves scratch", x, y);
    s.scale("reads it", y, state);
    let mut signatures = signatures();
    signatures.get_mut(&key("scale")).unwrap().params[2].access = crate::Access::Scratch;
    let errors = s.builder.finish().check(signatures).unwrap_err();
    assert_eq!(errors[0].code, PlanCode::ReadBeforeWrite);
}

#[test]
fn no_executor_sets_up_multicast_addresses() {
    let mut s = Sample::new();
    let (x, y) = (s.x, s.y);
    s.scale("adds over ranks", x, y);
    let mut signatures = signatures();
    signatures.get_mut(&key("scale")).unwrap().params[2].access = crate::Access::Multicast;
    let errors = s.builder.finish().check(signatures).unwrap_err();
    assert_eq!(errors[0].code, PlanCode::Argument);
    let text = errors[0].to_string();
    assert!(text.contains("`y`") && text.contains("is a multicast address"), "{text}");
}

#[test]
fn sizes_of_collectives_fit_the_ranks() {
    let mut s = Sample::new();
    let (x, y, ids, out) = (s.x, s.y, s.ids, s.out);
    s.builder.all_gather("same size", x, y, 1);
    s.builder.all_reduce("integers", ids, out);
    assert_eq!(s.codes(), ["P0108", "P0108"]);
    let mut s = Sample::new();
    let all = s.builder.buffer("all", DType::F32, &[8], BufferRole::Step);
    s.builder.all_gather("gather", x, all, 2);
    s.builder.reduce_scatter("scatter", all, y, 2);
    assert_eq!(s.codes(), [""; 0]);
    let error = PlanError { code: PlanCode::Race, node: "n".into(), message: "m".into() };
    assert_eq!(error.to_string(), "P0105: n: m");
}

/// `[2, 2]` with its axes exchanged.
fn turned() -> crate::stored::StoredLayout {
    let digit = |stride| vec![crate::stored::StoredDigit { extent: 2, stride }];
    crate::stored::StoredLayout::new(vec![digit(1), digit(2)]).unwrap()
}

#[test]
fn a_weight_has_the_order_that_all_of_its_kernels_want() {
    let mut signatures = signatures();
    let mut other = signatures[&key("scale")].clone();
    signatures.get_mut(&key("scale")).unwrap().params[0].stored = Some(turned());
    let two = |other: Signature| {
        let mut all = signatures.clone();
        all.insert(key("other"), other);
        let mut s = Sample::new();
        let (w, x, y, state) = (s.w, s.x, s.y, s.state);
        s.scale("first", x, y);
        let node = s.builder.kernel("second", "k.tile", "other", &[]).read("w", w).read("x", y);
        node.write("y", state).scalar("by", Scalar::F32(2.0)).add();
        (w, x, s.builder.finish().check(all))
    };
    let (.., refused) = two(other.clone());
    let refused = refused.unwrap_err();
    assert_eq!(
        refused[0].to_string(),
        "P0109: second: `w` is wanted as row-major here, but as (2, 2):(1, 2) by `first`"
    );
    other.params[0].stored = Some(turned());
    let (w, x, plan) = two(other);
    let plan = plan.unwrap();
    assert_eq!((plan.stored(w), plan.stored(x)), (Some(&turned()), None));
}

#[test]
fn what_has_a_stored_order_is_no_copy_and_of_the_size_of_its_layout() {
    let mut signatures = signatures();
    let scale = signatures.get_mut(&key("scale")).unwrap();
    scale.params[0].stored = Some(turned());
    let mut s = Sample::new();
    let (w, x, y, state) = (s.w, s.x, s.y, s.state);
    s.scale("scale", x, y);
    let region = |buffer| Region { buffer, start: 0, len: 4 };
    s.builder.copy("copy", region(w), region(state));
    let errors = s.builder.finish().check(signatures.clone()).unwrap_err();
    assert_eq!((errors.len(), errors[0].code, &*errors[0].node), (1, PlanCode::Stored, "copy"));

    let digit = |extent, stride| vec![crate::stored::StoredDigit { extent, stride }];
    let large = crate::stored::StoredLayout::new(vec![digit(3, 1), digit(2, 3)]).unwrap();
    signatures.get_mut(&key("scale")).unwrap().params[0].stored = Some(large);
    let mut s = Sample::new();
    s.scale("scale", x, y);
    let errors = s.builder.finish().check(signatures).unwrap_err();
    assert_eq!(errors[0].message, "`w` does not have the 6 elements of (3, 2):(1, 3)");
}

#[test]
fn what_has_no_elements_meets_nothing() {
    let mut s = Sample::new();
    let nothing = s.builder.buffer("nothing", DType::F32, &[0, 9], BufferRole::Step);
    let mut signatures = signatures();
    let kernel = vec![
        param("a", crate::Access::Input, &[0]),
        param("b", crate::Access::Output, &[0]),
        param("y", crate::Access::Output, &[4]),
    ];
    signatures.insert(key("empty"), Signature::new(kernel, true));
    let y = s.y;
    let node = s.builder.kernel("twice", "k.tile", "empty", &[]).read("a", nothing);
    node.write("b", nothing).write("y", y).add();
    let region = |start| Region { buffer: y, start, len: 0 };
    s.builder.copy("copies nothing", region(2), region(2));
    let mut plan = s.builder.finish();
    plan.nodes[1].after.clear();
    assert!(plan.check(signatures).is_ok());
}
