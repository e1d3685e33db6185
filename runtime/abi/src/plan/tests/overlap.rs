//! Launches that may run side by side: what they touch before their wait, and what their wait covers.

use super::*;

/// A plan of kernels that copy 4 elements: `scale` as it should be, and others that are wrong around their wait.
struct Chain {
    builder: PlanBuilder,
    w: BufferId,
    x: BufferId,
}

/// `scale`, and by name: `skips` may end without a wait, `hurries` lets the next kernel begin first, `peeks` reads `x`
/// early, `settled` has `x` settled, `spills` writes `y` early, `plain` starts when all before it have ended.
fn kernels() -> BTreeMap<KernelKey, Signature> {
    let mut all = signatures();
    let scale = all[&key("scale")].clone();
    let mut add = |name: &str, change: &dyn Fn(&mut Signature)| {
        let mut signature = scale.clone();
        change(&mut signature);
        all.insert(key(name), signature);
    };
    add("skips", &|s| s.waits.may_not_wait = true);
    add("hurries", &|s| s.waits.may_launch_first = true);
    add("peeks", &|s| s.params[1].touches.read_early = true);
    add("settled", &|s| s.params[1].settled = true);
    add("spills", &|s| s.params[2].touches.written_early = true);
    add("copies", &|s| s.params[1].touches.copied_unfenced = true);
    add("plain", &|s| s.starts_early = false);
    all
}

impl Chain {
    fn new() -> Chain {
        let mut builder = PlanBuilder::new(1);
        let w = builder.buffer("w", DType::F32, &[4], BufferRole::Weight);
        let x = builder.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
        Chain { builder, w, x }
    }

    fn step(&mut self, name: &str) -> BufferId {
        self.builder.buffer(name, DType::F32, &[4], BufferRole::Step)
    }

    fn state(&mut self, name: &str) -> BufferId {
        self.builder.buffer(name, DType::F32, &[4], BufferRole::State)
    }

    fn node(&mut self, name: &str, kernel: &str, x: BufferId, y: BufferId) {
        let w = self.w;
        let node = self.builder.kernel(name, "k.tile", kernel, &[]).read("w", w).read("x", x);
        node.write("y", y).scalar("by", Scalar::F32(2.0)).add();
    }

    fn found(self) -> Vec<String> {
        match self.builder.finish().check(kernels()) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        }
    }
}

/// `first` writes a, `second` of a kernel writes b, `third` of a kernel reads one of them, and three more end the step.
fn three(second: &str, third: &str, reads_first: bool) -> Vec<String> {
    let mut c = Chain::new();
    let x = c.x;
    let [a, b, d, e] = ["a", "b", "d", "e"].map(|name| c.step(name));
    c.node("first", "scale", x, a);
    c.node("second", second, x, b);
    c.node("third", third, if reads_first { a } else { b }, d);
    for (number, to) in [(0, e), (1, e), (2, e)] {
        c.node(&format!("rest {number}"), "scale", x, to);
    }
    c.found()
}

#[test]
fn a_chain_in_which_each_waits_is_covered_by_the_last_wait() {
    for reads_first in [true, false] {
        assert_eq!(three("scale", "scale", reads_first), [""; 0]);
        assert_eq!(three("hurries", "scale", reads_first), [""; 0]);
        assert_eq!(three("plain", "plain", reads_first), [""; 0]);
    }
    // What was written two launches back has ended when the one between let this one begin.
    assert_eq!(three("scale", "peeks", true), [""; 0]);
    assert_eq!(three("plain", "peeks", true), [""; 0]);
    assert_eq!(three("plain", "settled", true), [""; 0]);
}

#[test]
fn a_launch_that_may_not_wait_breaks_the_chain() {
    let found = three("skips", "scale", true);
    assert_eq!(
        found,
        [
            "P0111: third: `a` is read behind the wait, which does not cover it, and `first`, which may still run, writes it: \
          `first` -> `second` -> `third` (`second` may end without a wait, so its end says nothing of launches before it; \
          let it wait on every path)"
        ]
    );
    // What it has written itself is there.
    assert_eq!(three("skips", "scale", false), [""; 0]);
    // A launch that comes after all others knows no more.
    assert_eq!(three("skips", "plain", true).len(), 1);
}

#[test]
fn a_launch_that_is_missed_may_be_met_by_one_that_writes_what_it_reads() {
    let mut c = Chain::new();
    let x = c.x;
    let [a, b] = ["a", "b"].map(|name| c.step(name));
    c.node("fills", "scale", x, a);
    c.node("reads a", "scale", a, b);
    let other = c.step("other");
    c.node("second", "skips", x, other);
    c.node("writes a", "scale", x, a);
    for number in 0..3 {
        c.node(&format!("rest {number}"), "scale", x, other);
    }
    let found = c.found();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("P0111: writes a: `a` is written behind the wait"), "{found:?}");
    assert!(found[0].contains("`reads a`, which may still run, reads it"), "{found:?}");
}

#[test]
fn what_is_touched_before_the_wait_is_touched_by_no_launch_that_may_still_run() {
    let found = three("scale", "peeks", false);
    assert_eq!(
        found,
        [
            "P0110: third: `b` is read before the wait, and `second`, which may still run, writes it: `second` -> `third` \
          (it is the launch right before; touch the buffer behind the wait)"
        ]
    );
    let found = three("scale", "settled", false);
    assert!(
        found.len() == 1 && found[0].starts_with("P0107: third: `b` is settled here"),
        "{found:?}"
    );
    // A launch between that lets the third begin before its own wait says nothing of the first.
    for third in ["peeks", "settled"] {
        let found = three("hurries", third, true);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("P0110: third: `a` is read before the wait"), "{found:?}");
        assert!(found[0].contains("put its `grid_launch` behind its `grid_wait`"), "{found:?}");
    }
}

#[test]
fn what_is_written_before_the_wait_meets_readers_too() {
    let mut c = Chain::new();
    let x = c.x;
    let [a, b] = ["a", "b"].map(|name| c.step(name));
    c.node("fills", "scale", x, a);
    c.node("reads", "scale", a, b);
    c.node("writes", "spills", x, a);
    c.node("rest", "scale", x, b);
    let found = c.found();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("P0110: writes: `a` is written before the wait, and `reads`"),
        "{found:?}"
    );
}

#[test]
fn the_last_launch_of_the_step_before_may_still_run_for_early_touches_alone() {
    let two = |reader: &str, last: &str| {
        let mut c = Chain::new();
        let (x, s) = (c.x, c.state("s"));
        let [a, b] = ["a", "b"].map(|name| c.step(name));
        c.node("reads", reader, s, a);
        c.node("between", "scale", x, b);
        c.node("writes", last, x, s);
        c.found()
    };
    assert_eq!(two("scale", "scale"), [""; 0]);
    let found = two("settled", "scale");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("`writes` of the step before, the launch right before"), "{found:?}");
    let found = two("peeks", "scale");
    assert!(found[0].starts_with("P0110: reads: `s` is read before the wait"), "{found:?}");
}

#[test]
fn a_sum_in_place_may_be_no_launch() {
    let sums = |in_place: bool| {
        let mut c = Chain::new();
        let (x, s) = (c.x, c.state("s"));
        let [a, b, d] = ["a", "b", "d"].map(|name| c.step(name));
        c.node("other", "scale", x, a);
        c.node("writes", "scale", x, s);
        c.builder.all_reduce("sum", a, if in_place { a } else { b });
        c.node("reads", "settled", s, d);
        c.node("last", "scale", x, d);
        c.found()
    };
    assert_eq!(sums(false), [""; 0]);
    let found = sums(true);
    assert!(found.len() == 1 && found[0].starts_with("P0107: reads: `s` is settled"), "{found:?}");
    // Nor does a copy of nothing come between.
    let mut c = Chain::new();
    let (x, s) = (c.x, c.state("s"));
    let [a, d] = ["a", "d"].map(|name| c.step(name));
    c.node("other", "scale", x, a);
    c.node("writes", "scale", x, s);
    let nothing = |buffer| Region { buffer, start: 2, len: 0 };
    c.builder.copy("nothing", nothing(x), nothing(s));
    c.node("reads", "settled", s, d);
    c.node("last", "scale", x, d);
    assert_eq!(c.found().len(), 1);
}

#[test]
fn copies_without_a_fence_read_what_was_there_before_a_launch_that_comes_after_all_others() {
    let found = three("scale", "copies", true);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("P0112: third: asynchronous copies read `a`"), "{found:?}");
    assert!(found[0].contains("`first` -> `second` -> `third`"), "{found:?}");
    assert_eq!(three("plain", "copies", true), [""; 0]);
    assert_eq!(three("plain", "copies", false).len(), 1);
}

#[test]
fn a_plan_says_how_long_nodes_may_still_run() {
    let until = |second: &str, third: &str| {
        let mut c = Chain::new();
        let x = c.x;
        let [a, b, d] = ["a", "b", "d"].map(|name| c.step(name));
        c.node("first", "scale", x, a);
        c.node("second", second, x, b);
        c.node("third", third, x, d);
        c.node("last", "scale", x, d);
        let plan = c.builder.finish().check(kernels()).unwrap();
        (0..4).map(|node| plan.runs_until(NodeId(node))).collect::<Vec<_>>()
    };
    assert_eq!(until("scale", "scale"), [0, 1, 2, 3]);
    // Nothing that comes later says that the first one has ended: the second has not waited for it.
    assert_eq!(until("skips", "scale"), [3, 1, 2, 3]);
    // What writes early does so while the launch right before still runs.
    assert_eq!(until("scale", "spills")[1], 2);
}

#[test]
fn long_paths_are_cut_in_the_middle() {
    let mut c = Chain::new();
    let x = c.x;
    let [a, b] = ["a", "b"].map(|name| c.step(name));
    c.node("first", "scale", x, a);
    for number in 0..9 {
        let own = c.step(&format!("b{number}"));
        c.node(&format!("s{number}"), "skips", x, own);
    }
    c.node("reads", "scale", a, b);
    for number in 0..3 {
        c.node(&format!("rest {number}"), "scale", x, b);
    }
    let found = c.found();
    let path = "`first` -> `s0` -> 5 more -> `s6` -> `s7` -> `s8` -> `reads`";
    assert!(found.iter().any(|text| text.contains(path)), "{found:?}");
}
