//! Layout operations against first principles: what they mean, coordinate by coordinate.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use kernel_ir::layout::{
    AnswerOptions, Axis, Digit, IntTuple, Layout, Swizzle, Tiler, answer_bytes, answer_line,
    coalesce, complement, compose_layouts, evaluate, filter, left_inverse, logical_divide,
    logical_product, relabel, right_inverse, tiled_divide, tiled_product, zipped_divide,
    zipped_product,
};
use proptest::prelude::*;

/// Nested layouts of small extents; strides are often those that operations like.
fn layouts() -> impl Strategy<Value = Layout> {
    let extent = prop_oneof![4 => Just(2), 3 => Just(4), 2 => Just(3), 2 => Just(1), 1 => Just(8), 1 => Just(5)];
    let stride = prop_oneof![
        Just(0),
        Just(1),
        Just(2),
        Just(3),
        Just(4),
        Just(6),
        Just(8),
        Just(12),
        Just(16),
        Just(32)
    ];
    let leaf = (extent, stride)
        .prop_map(|(extent, stride): (i64, i64)| (IntTuple::Int(extent), IntTuple::Int(stride)));
    let nested = leaf.prop_recursive(2, 5, 3, |inner| {
        prop::collection::vec(inner, 1..=3).prop_map(|parts| {
            let (shapes, strides) = parts.into_iter().unzip();
            (IntTuple::Tuple(shapes), IntTuple::Tuple(strides))
        })
    });
    nested.prop_map(|(shape, stride)| Layout::new(&shape, &stride).unwrap())
}

/// Layouts that visit `0..size` once, in some order of their modes.
fn bijections() -> impl Strategy<Value = Layout> {
    prop::collection::vec(prop_oneof![Just(1_i64), Just(2), Just(3), Just(4)], 1..=4)
        .prop_flat_map(|extents| {
            let order: Vec<usize> = (0..extents.len()).collect();
            (Just(extents), Just(order).prop_shuffle())
        })
        .prop_map(|(extents, order)| {
            let mut digits: Vec<Digit> =
                extents.iter().map(|&extent| Digit { extent, stride: 0 }).collect();
            let mut stride = 1;
            for position in order {
                digits[position].stride = stride;
                stride *= digits[position].extent;
            }
            Layout::of_digits(&digits).unwrap()
        })
}

fn at(layout: &Layout, coordinate: i64) -> i64 {
    layout.index(coordinate).unwrap()
}

fn image(layout: &Layout) -> BTreeSet<i64> {
    layout.map().unwrap().into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_map_is_the_index_of_each_coordinate(layout in layouts()) {
        let by_index: Vec<i64> = (0..layout.size()).map(|i| at(&layout, i)).collect();
        prop_assert_eq!(layout.map().unwrap(), by_index);
        prop_assert_eq!(layout.map().unwrap().into_iter().max().unwrap() + 1, layout.cosize());
    }

    #[test]
    fn notation_prints_and_parses(layout in layouts()) {
        let parsed = evaluate(&layout.to_string()).unwrap();
        prop_assert_eq!(parsed.inner(), &layout);
    }

    #[test]
    fn coalesce_keeps_the_map(layout in layouts()) {
        let flat = coalesce(&layout);
        prop_assert_eq!(flat.map().unwrap(), layout.map().unwrap());
        prop_assert_eq!(coalesce(&flat), flat.clone());
        prop_assert!(flat.size() == 1 || flat.digits().iter().all(|d| d.extent > 1));
    }

    #[test]
    fn filter_keeps_the_image(layout in layouts()) {
        let moving = filter(&layout);
        prop_assert_eq!(image(&moving), image(&layout));
        prop_assert!(moving.size() == 1 || moving.digits().iter().all(|d| d.stride > 0));
    }

    #[test]
    fn each_mode_of_a_composition_is_first_after_that_mode(a in layouts(), b in layouts()) {
        let unbounded = coalesce(&a);
        let mut is_defined = true;
        for digit in b.digits() {
            let mode = Layout::of_int(digit.extent, digit.stride).unwrap();
            match compose_layouts(&a, &mode) {
                Err(_) => is_defined = false,
                Ok(both) => for i in 0..mode.size() {
                    prop_assert_eq!(at(&both, i), at(&unbounded, at(&mode, i)));
                }
            }
        }
        prop_assert_eq!(compose_layouts(&a, &b).is_ok(), is_defined);
    }

    #[test]
    fn composition_is_first_after_second(a in layouts(), b in layouts()) {
        if let Ok(both) = compose_layouts(&a, &b) {
            prop_assert_eq!(both.size(), b.size());
            // Modes of the second that overlap may carry into the next mode of the first, and
            // composition goes mode by mode; without overlap it is exact.
            if left_inverse(&filter(&b)).is_ok() {
                let unbounded = coalesce(&a);
                for i in 0..b.size() {
                    prop_assert_eq!(at(&both, i), at(&unbounded, at(&b, i)));
                }
            }
        }
    }

    #[test]
    fn composition_with_the_identity_changes_nothing(a in bijections()) {
        let whole = Layout::identity(a.size()).unwrap();
        prop_assert_eq!(compose_layouts(&a, &whole).unwrap().map().unwrap(), a.map().unwrap());
        let same = compose_layouts(&whole, &a).unwrap();
        prop_assert_eq!(same.shape(), a.shape());
        prop_assert_eq!(same.map().unwrap(), a.map().unwrap());
    }

    #[test]
    fn complement_is_disjoint_and_ordered(layout in layouts(), codomain in 1_i64..300) {
        if let Ok(rest) = complement(&layout, codomain) {
            let own = image(&layout);
            let other = rest.map().unwrap();
            prop_assert!(other.windows(2).all(|pair| pair[0] < pair[1]));
            for &index in &other {
                prop_assert!(index == 0 || !own.contains(&index), "{} and {}", layout, rest);
            }
            let sums: BTreeSet<i64> =
                own.iter().flat_map(|a| other.iter().map(move |b| a + b)).collect();
            prop_assert_eq!(sums.len(), own.len() * other.len(), "sums are distinct");
        }
    }

    #[test]
    fn complement_covers_where_strides_divide(layout in bijections(), factor in 1_i64..5) {
        let spread: Vec<Digit> =
            layout.digits().iter().map(|d| Digit { stride: d.stride * factor, ..*d }).collect();
        let spread = Layout::of_digits(&spread).unwrap();
        let codomain = layout.size() * factor * 3;
        let rest = complement(&spread, codomain).unwrap();
        let own = image(&spread);
        let sums: BTreeSet<i64> =
            rest.map().unwrap().iter().flat_map(|b| own.iter().map(move |a| a + b)).collect();
        if layout.size() > 1 {
            prop_assert_eq!(sums, (0..codomain).collect::<BTreeSet<_>>());
        }
    }

    #[test]
    fn right_inverse_is_undone(layout in layouts()) {
        let inverse = right_inverse(&layout);
        for i in 0..inverse.size() {
            prop_assert_eq!(at(&layout, at(&inverse, i)), i);
        }
    }

    #[test]
    fn left_inverse_undoes(layout in layouts()) {
        let distinct = i64::try_from(image(&layout).len()).unwrap() == layout.size();
        if let Ok(inverse) = left_inverse(&layout) {
            prop_assert!(distinct);
            for i in 0..layout.size() {
                prop_assert_eq!(at(&inverse, at(&layout, i)), i);
            }
        }
    }

    #[test]
    fn bijections_have_both_inverses(layout in bijections()) {
        prop_assert!(layout.is_bijective());
        prop_assert_eq!(image(&layout).len(), usize::try_from(layout.size()).unwrap());
        prop_assert_eq!(right_inverse(&layout), left_inverse(&layout).unwrap());
        prop_assert_eq!(right_inverse(&layout).size(), layout.size());
    }

    #[test]
    fn is_bijective_agrees_with_the_map(layout in layouts()) {
        let onto = image(&layout) == (0..layout.size()).collect();
        prop_assert_eq!(layout.is_bijective(), onto);
    }

    #[test]
    fn a_divide_is_the_tile_and_its_repetitions(a in layouts(), b in layouts()) {
        let tiler = Tiler::from(b.clone());
        if let Ok(divided) = logical_divide(&a, &tiler) {
            let modes = divided.modes();
            prop_assert_eq!(&modes[0], &compose_layouts(&a, &b).unwrap());
            let rest = complement(&b, a.size()).unwrap();
            prop_assert_eq!(&modes[1], &compose_layouts(&a, &rest).unwrap());
            prop_assert_eq!(zipped_divide(&a, &tiler).unwrap(), divided);
            let mut tiled = vec![modes[0].clone()];
            tiled.extend(modes[1].modes());
            prop_assert_eq!(tiled_divide(&a, &tiler).unwrap(), Layout::join(tiled).unwrap());
        }
    }

    #[test]
    fn a_dividing_tile_only_reorders(layout in bijections(), factor in 1_i64..5) {
        if layout.size() % factor == 0
            && let Ok(divided) = logical_divide(&layout, &Tiler::Int(factor))
        {
            prop_assert_eq!(divided.map().unwrap(), layout.map().unwrap());
        }
    }

    #[test]
    fn a_product_repeats_the_block(a in layouts(), b in layouts()) {
        let tiler = Tiler::from(b.clone());
        if let Ok(product) = logical_product(&a, &tiler) {
            let modes = product.modes();
            prop_assert_eq!(&modes[0], &a);
            prop_assert_eq!(modes[1].size(), b.size());
            prop_assert_eq!(modes[1].shape().flatten().len() >= b.shape().flatten().len(), true);
            // Where the block has gaps, fewer free places may lie below the codomain than the
            // second layout asks for, and the last mode of the complement goes on into the block.
            let free = complement(&a, a.size() * b.cosize()).unwrap().size();
            if left_inverse(&filter(&b)).is_ok() && b.cosize() <= free {
                let places = image(&modes[1]);
                prop_assert_eq!(places.len(), image(&b).len(), "places as b repeats them");
                let own = image(&a);
                let sums: BTreeSet<i64> =
                    own.iter().flat_map(|x| places.iter().map(move |y| x + y)).collect();
                prop_assert_eq!(sums.len(), own.len() * places.len(), "blocks do not overlap");
            }
            prop_assert_eq!(zipped_product(&a, &tiler).unwrap(), product);
            let mut tiled = vec![a.clone()];
            tiled.extend(modes[1].modes());
            prop_assert_eq!(tiled_product(&a, &tiler).unwrap(), Layout::join(tiled).unwrap());
        }
    }

    #[test]
    fn by_mode_goes_mode_by_mode(
        a in layouts(), b in layouts(), x in layouts(), extent in 1_i64..5,
    ) {
        let joined = Layout::join(vec![a.clone(), b.clone()]).unwrap();
        let tiler = Tiler::Modes(vec![Tiler::Layout(x.clone()), Tiler::Int(extent)]);
        let parts = (
            logical_divide(&a, &Tiler::Layout(x)),
            logical_divide(&b, &Tiler::Int(extent)),
        );
        match (logical_divide(&joined, &tiler), parts) {
            (Ok(whole), (Ok(first), Ok(second))) => {
                prop_assert_eq!(whole.modes(), vec![first.clone(), second.clone()]);
                let zipped = zipped_divide(&joined, &tiler).unwrap().modes();
                let (f, s) = (first.modes(), second.modes());
                prop_assert_eq!(zipped[0].modes(), vec![f[0].clone(), s[0].clone()]);
                prop_assert_eq!(zipped[1].modes(), vec![f[1].clone(), s[1].clone()]);
            }
            (Err(_), (first, second)) => prop_assert!(first.is_err() || second.is_err()),
            (Ok(_), _) => prop_assert!(false, "a part is undefined and the whole is not"),
        }
    }

    #[test]
    fn a_swizzle_is_its_own_inverse(
        bits in 0_i64..4, base in 0_i64..5, distance in 0_i64..5, left in any::<bool>(),
    ) {
        let shift = if left { -(bits + distance) } else { bits + distance };
        let swizzle = Swizzle::new(bits, base, shift).unwrap();
        let size = 1_i64 << (bits + base + shift.abs()).min(12);
        let mut seen = BTreeSet::new();
        for index in 0..size {
            let moved = swizzle.apply(index);
            prop_assert_eq!(swizzle.apply(moved), index);
            seen.insert(moved);
        }
        prop_assert_eq!(seen.len(), usize::try_from(size).unwrap());
    }

    #[test]
    fn a_view_reads_the_same_storage(
        n in 1_i64..5, j in 1_i64..5, k in 1_i64..5, order in Just([0_usize, 1, 2]).prop_shuffle(),
    ) {
        let names = ["n", "j", "k"];
        let axes = [Axis::new(n, j * k).unwrap(), Axis::new(j * k, 1).unwrap()];
        let [a, b, c] = order.map(|position| names[position]);
        let view = relabel(&axes, &format!("n (j k) -> {a} ({b} {c})"), &[("k", k)]).unwrap();
        let extents = order.map(|position| [n, j, k][position]);
        let layouts: Vec<Layout> = view.iter().map(Axis::to_layout).collect();
        for slow in 0..extents[0] {
            for mid in 0..extents[1] {
                for fast in 0..extents[2] {
                    let mut at_letter = [0; 3];
                    for (position, value) in order.iter().zip([slow, mid, fast]) {
                        at_letter[*position] = value;
                    }
                    let storage = (at_letter[0] * j + at_letter[1]) * k + at_letter[2];
                    let seen = at(&layouts[0], slow) + at(&layouts[1], mid * extents[2] + fast);
                    prop_assert_eq!(seen, storage);
                }
            }
        }
        let (shown, mut bound) = (format!("{a} ({b} {c}) -> n (j k)"), vec![]);
        bound.push((c, extents[2]));
        prop_assert_eq!(relabel(&view, &shown, &bound).unwrap(), axes.to_vec());
    }

    #[test]
    fn any_bytes_get_one_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let answer = answer_bytes(&bytes, AnswerOptions { json: true, map: true });
        prop_assert!(serde_json::from_str::<serde_json::Value>(&answer.text).is_ok());
        prop_assert!(!answer.text.contains('\n'));
    }

    #[test]
    fn any_expression_like_text_gets_one_line(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "coalesce(", "composition(", "complement(", "left_inverse(", "zipped_divide(",
                "logical_product(", "swizzle(1,0,1)", " o ", "(", ")", ",", ":", "2", "8", "0",
                "-1", "9223372036854775807", "(4,8):(1,4)", "(2,4)", "8:2",
            ]),
            0..24,
        ),
    ) {
        let text = parts.concat();
        let plain = answer_line(&text, AnswerOptions { json: false, map: true });
        prop_assert!(!plain.text.is_empty() && !plain.text.contains('\n'));
        let json = answer_line(&text, AnswerOptions { json: true, map: true });
        prop_assert!(serde_json::from_str::<serde_json::Value>(&json.text).is_ok());
        prop_assert_eq!(plain.is_error, json.is_error);
    }
}

#[test]
fn extreme_numbers_are_refused_and_never_wrap() {
    let numbers = ["1", "2", "4294967296", "4611686018427387904", "9223372036854775807"];
    let operations = [
        "composition",
        "logical_divide",
        "zipped_divide",
        "tiled_divide",
        "logical_product",
        "zipped_product",
        "tiled_product",
    ];
    let options = AnswerOptions { json: false, map: false };
    for a in numbers {
        for b in numbers {
            for c in numbers {
                for d in numbers {
                    for operation in operations {
                        answer_line(&format!("{operation}({a}:{b},{c}:{d})"), options);
                        answer_line(&format!("{operation}((2,{a}):({b},1),{c}:{d})"), options);
                    }
                    for operation in ["coalesce", "filter", "right_inverse", "left_inverse"] {
                        answer_line(&format!("{operation}(({a},{b}):({c},{d}))"), options);
                    }
                    answer_line(&format!("complement(({a},{b}):(1,{c}),{d})"), options);
                    answer_line(&format!("swizzle(2,1,3) o {a} o {c}:{d}"), options);
                }
            }
        }
    }
}
