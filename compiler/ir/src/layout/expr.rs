//! Evaluates expressions such as `composition((4,8):(1,4), 8:2)`.
//!
//! Operations on a composed layout apply to its inner layout where CuTe defines them so; the
//! complement of a composed layout is that of its inner layout. A composed layout is never a
//! second argument, and its inverses, whose swizzle would come first, are refused.

use super::notation::{Expr, Operation, parse};
use super::{
    AnyLayout, ComposedLayout, Layout, LayoutError, Swizzle, Tiler, coalesce, complement, compose,
    filter, left_inverse, logical_divide, logical_product, right_inverse, tiled_divide,
    tiled_product, zipped_divide, zipped_product,
};

/// Parses and evaluates one expression.
pub fn evaluate(text: &str) -> Result<AnyLayout, LayoutError> {
    evaluate_expr(&parse(text)?)
}

/// Evaluates a parsed expression to a layout.
pub fn evaluate_expr(expr: &Expr) -> Result<AnyLayout, LayoutError> {
    match value_of(expr)? {
        Value::Layout(layout) => Ok(layout.into()),
        Value::Composed(composed) => Ok(composed.into()),
        other @ (Value::Int(_) | Value::Modes(_) | Value::Swizzle(_)) => {
            Err(LayoutError::notation(format!(
                "the expression is {}, not a layout `shape:stride`",
                other.kind()
            )))
        }
    }
}

enum Value {
    Int(i64),
    Modes(Vec<Tiler>),
    Layout(Layout),
    Swizzle(Swizzle),
    Composed(ComposedLayout),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) => "an integer",
            Self::Modes(_) => "a bare tuple, a by-mode tiler",
            Self::Layout(_) => "a layout",
            Self::Swizzle(_) => "a swizzle",
            Self::Composed(_) => "a composed layout",
        }
    }

    fn into_tiler(self, place: &str) -> Result<Tiler, LayoutError> {
        match self {
            Self::Int(extent) => Ok(Tiler::Int(extent)),
            Self::Modes(modes) => Ok(Tiler::Modes(modes)),
            Self::Layout(layout) => Ok(Tiler::Layout(layout)),
            Self::Swizzle(_) | Self::Composed(_) => Err(LayoutError::undefined(format!(
                "{place} is {}; only a layout, an integer or a tuple of them can stand there",
                self.kind()
            ))),
        }
    }
}

fn value_of(expr: &Expr) -> Result<Value, LayoutError> {
    match expr {
        Expr::Int(value) => Ok(Value::Int(*value)),
        Expr::Tuple(parts) => {
            let modes = parts.iter().map(|part| value_of(part)?.into_tiler("a mode of a tuple"));
            Ok(Value::Modes(modes.collect::<Result<_, _>>()?))
        }
        Expr::Layout { shape, stride } => Ok(Value::Layout(Layout::new(shape, stride)?)),
        Expr::Swizzle(parameters) => Ok(Value::Swizzle(swizzle_of(*parameters)?)),
        Expr::Composed { swizzle, offset, inner } => {
            let swizzle = swizzle_of(*swizzle)?;
            match value_of(inner)? {
                Value::Layout(inner) => {
                    Ok(Value::Composed(ComposedLayout::new(swizzle, *offset, inner)?))
                }
                other @ Value::Composed(_) => Err(LayoutError::undefined(format!(
                    "the last part of a composed layout is {}; two swizzles do not combine",
                    other.kind()
                ))),
                other @ (Value::Int(_) | Value::Modes(_) | Value::Swizzle(_)) => {
                    Err(LayoutError::notation(format!(
                        "the last part of a composed layout is {}, not a layout `shape:stride`",
                        other.kind()
                    )))
                }
            }
        }
        Expr::Call { operation, arguments } => call(*operation, arguments),
    }
}

fn swizzle_of([bits, base, shift]: [i64; 3]) -> Result<Swizzle, LayoutError> {
    Swizzle::new(bits, base, shift)
}

fn call(operation: Operation, arguments: &[Expr]) -> Result<Value, LayoutError> {
    let mut values = arguments.iter().map(value_of).collect::<Result<Vec<_>, _>>()?;
    let second = match values.len() {
        0 | 1 => None,
        _ => values.pop(),
    };
    let (Some(first), true) = (values.pop(), values.is_empty()) else {
        return Err(wrong_count(operation, arguments.len()));
    };
    match operation {
        Operation::Coalesce => {
            only(operation, second.is_none())?;
            apply(operation, first, |layout| Ok(coalesce(layout)))
        }
        Operation::Filter => {
            only(operation, second.is_none())?;
            apply(operation, first, |layout| Ok(filter(layout)))
        }
        Operation::RightInverse => {
            only(operation, second.is_none())?;
            Ok(Value::Layout(right_inverse(&plain(operation, first)?)))
        }
        Operation::LeftInverse => {
            only(operation, second.is_none())?;
            Ok(Value::Layout(left_inverse(&plain(operation, first)?)?))
        }
        Operation::Complement => {
            let codomain = match second {
                None => 1,
                Some(Value::Int(codomain)) => codomain,
                Some(
                    other @ (Value::Modes(_)
                    | Value::Layout(_)
                    | Value::Swizzle(_)
                    | Value::Composed(_)),
                ) => {
                    return Err(LayoutError::notation(format!(
                        "complement: the second argument is {}, it is an integer, the size of \
                         the codomain",
                        other.kind()
                    )));
                }
            };
            let inner = match first {
                Value::Composed(composed) => composed.inner().clone(),
                other
                @ (Value::Int(_) | Value::Modes(_) | Value::Layout(_) | Value::Swizzle(_)) => {
                    plain(operation, other)?
                }
            };
            Ok(Value::Layout(complement(&inner, codomain)?))
        }
        Operation::Composition => {
            let tiler = tiler(operation, second)?;
            match (first, tiler) {
                (Value::Swizzle(swizzle), Tiler::Layout(inner)) => {
                    Ok(Value::Composed(ComposedLayout::new(swizzle, 0, inner)?))
                }
                (first, tiler) => apply(operation, first, |layout| compose(layout, &tiler)),
            }
        }
        Operation::LogicalDivide => tile(operation, first, second, logical_divide),
        Operation::ZippedDivide => tile(operation, first, second, zipped_divide),
        Operation::TiledDivide => tile(operation, first, second, tiled_divide),
        Operation::LogicalProduct => tile(operation, first, second, logical_product),
        Operation::ZippedProduct => tile(operation, first, second, zipped_product),
        Operation::TiledProduct => tile(operation, first, second, tiled_product),
    }
}

fn tile(
    operation: Operation,
    first: Value,
    second: Option<Value>,
    apply_tiler: fn(&Layout, &Tiler) -> Result<Layout, LayoutError>,
) -> Result<Value, LayoutError> {
    let tiler = tiler(operation, second)?;
    apply(operation, first, |layout| apply_tiler(layout, &tiler))
}

/// Applies to a layout, or to the inner layout of a composed one.
fn apply(
    operation: Operation,
    first: Value,
    function: impl FnOnce(&Layout) -> Result<Layout, LayoutError>,
) -> Result<Value, LayoutError> {
    match first {
        Value::Composed(composed) => {
            Ok(Value::Composed(composed.with_inner(function(composed.inner())?)?))
        }
        other @ (Value::Int(_) | Value::Modes(_) | Value::Layout(_) | Value::Swizzle(_)) => {
            Ok(Value::Layout(function(&plain(operation, other)?)?))
        }
    }
}

fn plain(operation: Operation, first: Value) -> Result<Layout, LayoutError> {
    match first {
        Value::Layout(layout) => Ok(layout),
        Value::Composed(_) => Err(LayoutError::undefined(format!(
            "{}: the result for a composed layout has its swizzle on the other side, which is no \
             layout of the notation",
            operation.name()
        ))),
        other @ (Value::Int(_) | Value::Modes(_) | Value::Swizzle(_)) => {
            Err(LayoutError::notation(format!(
                "{}: the first argument is {}, not a layout `shape:stride`",
                operation.name(),
                other.kind()
            )))
        }
    }
}

fn tiler(operation: Operation, second: Option<Value>) -> Result<Tiler, LayoutError> {
    let place = format!("{}: the second argument", operation.name());
    second.ok_or_else(|| wrong_count(operation, 1))?.into_tiler(&place)
}

fn only(operation: Operation, is_alone: bool) -> Result<(), LayoutError> {
    if is_alone { Ok(()) } else { Err(wrong_count(operation, 2)) }
}

fn wrong_count(operation: Operation, found: usize) -> LayoutError {
    let wanted = match operation {
        Operation::Coalesce
        | Operation::Filter
        | Operation::RightInverse
        | Operation::LeftInverse => "one argument",
        Operation::Complement => "a layout and, if wanted, the size of the codomain",
        Operation::Composition
        | Operation::LogicalDivide
        | Operation::ZippedDivide
        | Operation::TiledDivide
        | Operation::LogicalProduct
        | Operation::ZippedProduct
        | Operation::TiledProduct => "two arguments",
    };
    LayoutError::notation(format!("{} takes {wanted}, found {found}", operation.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        evaluate(text).map_or_else(|e| format!("{}: {e}", e.code()), |layout| layout.to_string())
    }

    #[test]
    fn operations_nest() {
        assert_eq!(shown("composition((4,8):(1,4), 8:2)"), "8:2");
        assert_eq!(shown("coalesce(logical_divide((4,8):(1,4), 8))"), "32:1");
        assert_eq!(shown("coalesce((1,(1,)):(7,(0,)))"), "1:0");
        assert_eq!(shown("composition(8:1, (8,):(1,))"), "(8,):(1,)");
        assert_eq!(shown("composition(8:1, 8:1)"), "8:1");
        assert_eq!(shown("composition(8:1, (4,))"), "(4,):(1,)");
    }

    #[test]
    fn tilers_go_by_mode_and_may_nest() {
        assert_eq!(shown("composition((8,8):(1,8), (2,4))"), "(2,4):(1,8)");
        assert_eq!(shown("composition((8,8):(1,8), (4:2,))"), "(4,8):(2,8)");
        assert_eq!(shown("zipped_divide((8,8):(1,8), (4:2,2))"), "((4,2),(2,4)):((2,8),(1,16))");
        assert_eq!(shown("tiled_divide((8,8):(1,9), 4)"), "(4,2,8):(1,4,9)");
        assert_eq!(shown("tiled_product(4:1, (2,3):(1,2))"), "(4,2,3):(1,4,8)");
        assert_eq!(shown("logical_product(4:1, 3)"), "(4,3):(1,4)");
        assert_eq!(
            shown("zipped_divide(((4,8),8):((1,4),32), ((2,4),2))"),
            "(((2,4),2),((2,2),4)):(((1,4),32),((2,16),64))"
        );
        assert!(shown("composition(8:1, (2,4))").starts_with("E0301"));
    }

    #[test]
    fn composed_layouts_take_part_where_defined() {
        let composed = "swizzle(2,0,2) o 0 o (4,4):(1,4)";
        assert_eq!(shown(composed), composed);
        assert_eq!(shown("composition(swizzle(2,0,2), (4,4):(1,4))"), composed);
        assert_eq!(shown(&format!("coalesce({composed})")), "swizzle(2,0,2) o 0 o 16:1");
        assert_eq!(shown(&format!("composition({composed}, 2:4)")), "swizzle(2,0,2) o 0 o 2:4");
        assert_eq!(shown(&format!("complement({composed}, 64)")), "4:16");
        assert!(shown(&format!("left_inverse({composed})")).starts_with("E0301"));
        assert!(shown(&format!("composition(16:1, {composed})")).starts_with("E0301"));
        assert!(shown(&format!("swizzle(1,0,1) o 0 o {composed}")).starts_with("E0301"));
        assert!(shown("swizzle(3,0,2) o 0 o 8:1").starts_with("E0301"));
        assert!(shown("swizzle(2,60,2) o 0 o 8:1").starts_with("E0303"));
        assert!(shown("swizzle(2,0,2) o -1 o 8:1").starts_with("E0301"));
        assert!(shown("swizzle(2,0,2)").starts_with("E0302"));
    }

    #[test]
    fn wrong_arguments_are_named() {
        assert_eq!(shown("coalesce(8:1, 8:1)"), "E0302: coalesce takes one argument, found 2");
        assert_eq!(shown("composition(8:1)"), "E0302: composition takes two arguments, found 1");
        assert_eq!(
            shown("logical_divide(8:1,2,3)"),
            "E0302: logical_divide takes two arguments, found 3"
        );
        assert!(shown("complement(8:1, 2:1)").starts_with("E0302"));
        assert!(shown("complement(8:1, 0)").starts_with("E0301"));
        assert!(shown("complement(8:1, -4)").starts_with("E0301"));
        assert!(shown("coalesce((2,4))").starts_with("E0302"));
        assert!(shown("(2,4)").starts_with("E0302"));
        assert!(shown("(0,4):(1,1)").starts_with("E0301"));
        assert!(shown("(2,4):(1,-1)").starts_with("E0301"));
        assert!(shown("(2,4):1").starts_with("E0302"));
        assert!(shown("composition(4:4611686018427387904, 8:1)").starts_with("E0303"));
        assert!(shown("composition(8:1, 0)").starts_with("E0301"));
    }
}
