//! Threads that wait for each other, or for what they have written themselves: what a thread writes before it waits is
//! there for others, also where no value yet known lets it end.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use kernel_memory_model::Verdict::{Allowed, Forbidden, Holds, Violated};
use kernel_memory_model::{Decision, Limits, Model, decide, parse};

fn decided(text: &str) -> Decision {
    let test = parse(text).unwrap_or_else(|found| panic!("{found:?}\n{text}"));
    let in_both = Model::ALL.map(|model| decide(&test, model, &Limits::default()).unwrap());
    let [old, new] = in_both;
    assert_eq!(old.verdict, new.verdict, "{text}");
    new
}

/// Two threads of different CTAs, row by row.
fn two(rows: &[(&str, &str)], question: &str) -> Decision {
    let rows: String = rows.iter().map(|(a, b)| format!(" {a} | {b} ;\n")).collect();
    decided(&format!(
        "PTX t\n{{ x=0; y=0; f=0; g=0; }}\nP0@cta 0,gpu 0 | P1@cta 1,gpu 0 ;\n{rows}{question}"
    ))
}

#[test]
fn a_thread_that_waits_for_its_own_write_ends() {
    let text = "PTX t\n{ x=0; }\n P0@cta 0,gpu 0 ;\n st.relaxed.gpu x, 1 ;\n LC00: ;\n ld.relaxed.gpu r0, x ;\n \
                beq r0, 0, LC00 ;\nexists (P0:r0 == 1)";
    assert_eq!(decided(text).verdict, Allowed);
}

#[test]
fn an_answer_is_seen_by_the_one_who_asked() {
    let rows = |order: [&str; 4]| {
        let [store, load, wait, answer] = order;
        [
            ("st.weak x, 1".to_owned(), "LB:".to_owned()),
            (format!("st.{store}.gpu f, 1"), format!("ld.{load}.gpu r0, f")),
            ("LA:".to_owned(), "beq r0, 0, LB".to_owned()),
            (format!("ld.{wait}.gpu r1, g"), "ld.weak r2, x".to_owned()),
            ("beq r1, 0, LA".to_owned(), format!("st.{answer}.gpu g, 1")),
        ]
    };
    let ask = |order, question| {
        let rows = rows(order);
        let rows: Vec<(&str, &str)> = rows.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        two(&rows, question).verdict
    };
    let strong = ["release", "acquire", "acquire", "release"];
    let relaxed = ["relaxed"; 4];
    assert_eq!(ask(strong, "exists (P0:r1 == 1 /\\ P1:r0 == 1)"), Allowed);
    assert_eq!(ask(strong, "forall (P1:r2 == 1)"), Holds);
    assert_eq!(ask(relaxed, "forall (P1:r2 == 1)"), Violated);
    assert_eq!(ask(relaxed, "~exists (P1:r2 == 0)"), Allowed);
}

/// Each adds 1 to a counter and waits until both have.
fn barrier(add: &str, load: &str, question: &str) -> Decision {
    let (add, load) = (format!("atom.{add}.gpu.add r0, f, 1"), format!("ld.{load}.gpu r1, f"));
    two(
        &[
            ("st.weak x, 1", "st.weak y, 1"),
            (&add, &add),
            ("LA:", "LB:"),
            (&load, &load),
            ("blt r1, 2, LA", "blt r1, 2, LB"),
            ("ld.weak r2, y", "ld.weak r2, x"),
        ],
        question,
    )
}

#[test]
fn a_barrier_of_a_counter_orders_what_is_before_it() {
    let both = "exists (P0:r2 == 1 /\\ P1:r2 == 1)";
    let stale = "exists (P0:r2 == 0)";
    assert_eq!(barrier("acq_rel", "acquire", both).verdict, Allowed);
    assert_eq!(barrier("acq_rel", "acquire", stale).verdict, Forbidden);
    assert_eq!(barrier("relaxed", "relaxed", stale).verdict, Allowed);
    assert_eq!(barrier("acq_rel", "relaxed", stale).verdict, Allowed);
}

#[test]
fn two_flags_that_wait_for_each_other_end() {
    let flags = |store: &str, load: &str, question: &str| {
        let own = [format!("st.{store}.gpu f, 1"), format!("st.{store}.gpu g, 1")];
        let other = [format!("ld.{load}.gpu r1, g"), format!("ld.{load}.gpu r1, f")];
        two(
            &[
                ("st.weak x, 1", "st.weak y, 1"),
                (&own[0], &own[1]),
                ("LA:", "LB:"),
                (&other[0], &other[1]),
                ("bne r1, 1, LA", "bne r1, 1, LB"),
                ("ld.weak r2, y", "ld.weak r2, x"),
            ],
            question,
        )
        .verdict
    };
    assert_eq!(flags("release", "acquire", "forall (P0:r2 == 1 /\\ P1:r2 == 1)"), Holds);
    assert_eq!(flags("relaxed", "relaxed", "forall (P0:r2 == 1 \\/ P1:r2 == 1)"), Violated);
}

#[test]
fn values_go_back_and_forth_over_three_phases() {
    let found = two(
        &[
            ("st.weak x, 1", "LB:"),
            ("st.release.gpu y, 1", "ld.acquire.gpu r0, y"),
            ("LA:", "bne r0, 1, LB"),
            ("ld.acquire.gpu r0, y", "st.weak x, 2"),
            ("bne r0, 2, LA", "st.release.gpu y, 2"),
            ("ld.weak r1, x", ""),
        ],
        "forall (P0:r1 == 2)",
    );
    assert_eq!(found.verdict, Holds);
    assert_eq!(found.endless, [0_usize; 0]);
}

#[test]
fn a_thread_that_comes_to_no_end_is_named() {
    let text = "PTX t\n{ x=0; }\n P0@cta 0,gpu 0 ;\n mov r0, 0 ;\n LC00: ;\n add r0, r0, 1 ;\n \
                bne r0, 3, LC00 ;\nexists (P0:r0 == 3)";
    let found = decided(text);
    assert_eq!((found.verdict, found.endless), (Forbidden, vec![0]));
    let test = parse(text).unwrap();
    let limits = Limits { unroll: 3, ..Limits::default() };
    let found = decide(&test, Model::Ptx75, &limits).unwrap();
    assert_eq!((found.verdict, found.endless), (Allowed, Vec::new()));
}
