//! What is measured: the kernels of `tests/gpu/numerics`, with the inputs that each is given.

use kernel_ir::ops::UnaryOp;

use super::inputs::Set;

/// A kernel with the inputs that it is given and how its outputs are judged.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    /// Of the artefact in the bundle.
    pub(crate) name: String,
    /// Of the file and its text.
    pub(crate) file: (&'static str, &'static str),
    pub(crate) kernel: String,
    /// Const parameters besides `N`.
    pub(crate) bind: Vec<(String, i64)>,
    pub(crate) subject: Subject,
    pub(crate) sets: Vec<Set>,
}

/// What the outputs are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Subject {
    /// The same bits, or any NaN for a NaN.
    Exact,
    /// A function of the only input.
    Function(UnaryOp),
    /// Sums of so many products on the tensor core.
    Product { depth: u32 },
}

const FUNCTIONS: (&str, &str) = ("functions.tile", include_str!("../../numerics/functions.tile"));
const FLOATS: (&str, &str) = ("floats.tile", include_str!("../../numerics/floats.tile"));
const INTEGERS: (&str, &str) = ("integers.tile", include_str!("../../numerics/integers.tile"));
const CONVERSIONS: (&str, &str) =
    ("conversions.tile", include_str!("../../numerics/conversions.tile"));
const ORDERS: (&str, &str) = ("orders.tile", include_str!("../../numerics/orders.tile"));
const PRODUCTS: (&str, &str) = ("products.tile", include_str!("../../numerics/products.tile"));

/// The functions of one f32, each with where its results are of use.
const MEASURED: [(UnaryOp, [f64; 2]); 7] = [
    (UnaryOp::Exp2, [-150.0, 128.0]),
    (UnaryOp::Exp, [-104.0, 89.0]),
    (UnaryOp::Log2, [0.25, 4.0]),
    (UnaryOp::Tanh, [-10.0, 10.0]),
    (UnaryOp::Sigmoid, [-100.0, 20.0]),
    (UnaryOp::Rsqrt, [0.25, 4.0]),
    (UnaryOp::Sqrt, [0.25, 4.0]),
];

/// Everything; with `every`, functions on every f32.
pub(crate) fn all(every: bool) -> Vec<Check> {
    let check = |name: &str, file, subject, sets: &[Set]| Check {
        name: name.to_owned(),
        file,
        kernel: name.to_owned(),
        bind: Vec::new(),
        subject,
        sets: sets.to_vec(),
    };
    let mut checks = Vec::new();
    for (op, [from, to]) in MEASURED {
        let sets = if every {
            vec![Set::Every]
        } else {
            vec![Set::Codes, Set::Words, Set::Between(from, to)]
        };
        let name = format!("of_{}", op.name());
        checks.push(check(&name, FUNCTIONS, Subject::Function(op), &sets));
    }
    if every {
        return checks;
    }
    let (words, ties) = (Set::Words, Set::Ties);
    let exact = |name: &str, file, sets: &[Set]| check(name, file, Subject::Exact, sets);
    let floats = [Set::Codes, words, Set::Near, Set::Between(-1.0, 1.0)];
    for name in ["f32", "f16", "bf16"] {
        checks.push(exact(&format!("{name}_arithmetic"), FLOATS, &floats));
    }
    for name in ["i8", "u8", "i32", "u32", "i64", "u64"] {
        checks.push(exact(&format!("{name}_arithmetic"), INTEGERS, &[words, Set::Near]));
    }
    checks.push(exact("from_f32", CONVERSIONS, &[Set::Codes, words, ties]));
    for name in ["f16", "bf16", "e4m3", "e5m2", "ue8m0", "e2m1", "i8", "u8", "bool"] {
        checks.push(exact(&format!("from_{name}"), CONVERSIONS, &[Set::Codes]));
    }
    for name in ["i32", "u32", "i64", "u64"] {
        checks.push(exact(&format!("from_{name}"), CONVERSIONS, &[words, ties]));
    }
    for name in ["order_rows", "order_products"] {
        checks.push(exact(name, ORDERS, &[Set::Between(-1.0, 1.0), Set::Near]));
    }
    let sums = [Set::Between(-1.0, 1.0), Set::Alike, Set::Scales, Set::Cancelling, words];
    for dtype in ["bf16", "f16"] {
        let kernel = format!("group_{dtype}");
        checks.push(check(&kernel, PRODUCTS, Subject::Product { depth: 16 }, &sums));
        checks.push(Check {
            sets: vec![Set::Whole],
            ..check(&kernel, PRODUCTS, Subject::Exact, &[])
        });
        for depth in [64u32, 512] {
            let kernel = format!("sums_{dtype}");
            let name = format!("{kernel}_k{depth}");
            let of = |subject, sets: &[Set]| Check {
                kernel: kernel.clone(),
                bind: vec![("K".to_owned(), i64::from(depth))],
                ..check(&name, PRODUCTS, subject, sets)
            };
            checks.push(of(Subject::Product { depth }, &sums[..4]));
            checks.push(of(Subject::Exact, &[Set::Whole]));
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_file_names_what_is_measured() {
        let text = include_str!("../../numerics/build.toml");
        for check in all(false) {
            assert!(text.contains(&format!("\"{}\"", check.name)), "{}", check.name);
            assert!(
                check.file.1.contains(&format!("kernel {}<", check.kernel)),
                "{}",
                check.kernel
            );
        }
        let mut names: Vec<String> = all(false).into_iter().map(|check| check.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), text.matches("{ kernel =").count());
    }
}
