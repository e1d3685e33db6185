//! Kernel level against device level: the same bits on kernels that a generator writes.
//!
//! The generator makes text from a seed, so that a failure is reproduced by its number; kernels whose tiles
//! would need a `relayout` are refused by the compiler and skipped.

use kernel_dsl::source::SourceMap;
use kernel_emulator::{Memory, Options, run_device, run_kernel};
use kernel_ir::pipeline;
use kernel_ir::sema::Bindings;
use kernel_ir::target::Target;

/// Kernels of one test.
const KERNELS: u64 = 150;

/// A generator of numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % sides as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

/// Shapes that values have: over both axes, over one of them, none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Both,
    Rows,
    Columns,
    Scalar,
}

use Shape::{Both, Columns, Rows, Scalar};

/// Text of a kernel in the making.
struct Writer {
    dice: Dice,
    text: String,
    values: Vec<(String, Shape)>,
    count: usize,
    depth: usize,
    rows: usize,
    columns: usize,
}

impl Writer {
    fn line(&mut self, line: &str) {
        for _ in 0..=self.depth {
            self.text.push_str("    ");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn any(&mut self, shape: Shape) -> Option<String> {
        let found: Vec<usize> =
            (0..self.values.len()).filter(|&i| self.values[i].1 == shape).collect();
        (!found.is_empty()).then(|| self.values[found[self.dice.roll(found.len())]].0.clone())
    }

    fn define(&mut self, shape: Shape, text: &str) {
        let name = format!("v{}", self.count);
        self.count += 1;
        self.line(&format!("let {name} = {text};"));
        self.values.push((name, shape));
    }

    /// A value of any shape that broadcasts to both axes.
    fn broadcast(&mut self) -> Option<String> {
        let shape = self.dice.pick(&[Both, Both, Rows, Columns, Scalar]);
        let value = self.any(shape)?;
        Some(match shape {
            Both | Scalar => value,
            Rows => format!("{value}[:, _]"),
            Columns => format!("{value}[_, :]"),
        })
    }

    fn step(&mut self) -> Option<()> {
        match self.dice.roll(13) {
            0 | 1 => {
                let (a, b) = (self.any(Both)?, self.broadcast()?);
                let op = self.dice.pick(&["+", "-", "*"]);
                self.define(Both, &format!("{a} {op} {b}"));
            }
            2 => {
                let shape = self.dice.pick(&[Both, Rows, Columns, Scalar]);
                let (a, b) = (self.any(shape)?, self.any(shape)?);
                let form = self.dice.pick(&["max", "min"]);
                self.define(shape, &format!("{form}({a}, {b})"));
            }
            3 => {
                let shape = self.dice.pick(&[Both, Rows, Columns, Scalar]);
                let a = self.any(shape)?;
                let form = self.dice.pick(&["sigmoid", "tanh", "abs", "-"]);
                self.define(shape, &format!("{form}({a})"));
            }
            4..=6 => {
                let a = self.any(Both)?;
                let (axis, shape) = self.dice.pick(&[(0, Columns), (1, Rows)]);
                let form = self.dice.pick(&["add", "add", "max", "min"]);
                self.define(shape, &format!("reduce.{form}({a}, axis = {axis})"));
            }
            7 => {
                let shape = self.dice.pick(&[Rows, Columns]);
                let a = self.any(shape)?;
                self.define(Scalar, &format!("reduce.add({a}, axis = 0)"));
            }
            8 => {
                let a = self.any(Both)?;
                let (b, text, shape) = match self.dice.roll(3) {
                    0 => (self.any(Columns)?, "a b, b -> a", Rows),
                    1 => (self.any(Rows)?, "a b, a -> b", Columns),
                    _ => (self.any(Both)?, "a b, a b -> a", Rows),
                };
                self.define(shape, &format!("contract(\"{text}\", {a}, {b})"));
            }
            9 => {
                let (a, b) = (self.any(Both)?, self.broadcast()?);
                self.define(Both, &format!("select({a} > {b}, {a}, 0.5)"));
            }
            10 => {
                let a = self.any(Both)?;
                let name = format!("v{}", self.count);
                self.count += 2;
                let at = format!("v{}", self.count - 1);
                self.line(&format!("let ({name}, {at}) = argmax({a}, axis = 1);"));
                self.values.push((name, Rows));
                let line = format!("f32({at})");
                self.define(Rows, &line);
            }
            11 if self.depth == 0 => self.looped()?,
            12 => {
                let a = self.any(Both)?;
                self.define(Both, &format!("f32(bf16({a}))"));
            }
            _ => {
                let a = self.any(Columns)?;
                self.define(Columns, &format!("fma({a}, {a}, {a})"));
            }
        }
        Some(())
    }

    /// A loop with run-time bounds that adds to a tile, with a choice inside.
    fn looped(&mut self) -> Option<()> {
        let (shape, extents) = match self.dice.roll(3) {
            0 => (Both, format!("[{}, {}]", self.rows, self.columns)),
            1 => (Rows, format!("[{}]", self.rows)),
            _ => (Columns, format!("[{}]", self.columns)),
        };
        let start = self.any(shape)?;
        let name = format!("t{}", self.count);
        self.count += 1;
        self.line(&format!("frag {name} : f32{extents} = {start};"));
        self.line("for i in 0..n {");
        self.depth += 1;
        let before = self.values.len();
        self.values.push((name.clone(), shape));
        for _ in 0..3 {
            self.step();
        }
        let added = self.any(shape)?;
        if self.dice.roll(2) == 0 {
            self.line(&format!(
                "if i % 2 == 0 {{ {name} = {name} + {added}; }} else {{ {name} = {added}; }}"
            ));
        } else {
            self.line(&format!("{name} = {name} * 0.5 + {added};"));
        }
        self.values.truncate(before);
        self.depth -= 1;
        self.line("}");
        self.define(shape, &format!("{name} + 0.0"));
        Some(())
    }
}

fn kernel_text(seed: u64) -> String {
    let mut dice = Dice(seed);
    for _ in 0..8 {
        dice.roll(2);
    }
    let rows = dice.pick(&[1, 2, 3, 4, 8, 16]);
    let columns = dice.pick(&[32, 64, 96, 128, 256, 40]);
    let warps = dice.pick(&[1, 2, 3, 4]);
    let mut w =
        Writer { dice, text: String::new(), values: Vec::new(), count: 0, depth: 0, rows, columns };
    w.line("let x = load a;");
    w.line("let z = f32(load b);");
    w.line("let r = load c;");
    w.line("let k = load d;");
    w.line("let s = load e[cta.x];");
    for (name, shape) in [("x", Both), ("z", Both), ("r", Rows), ("k", Columns), ("s", Scalar)] {
        w.values.push((name.into(), shape));
    }
    let steps = 4 + w.dice.roll(8);
    for _ in 0..steps {
        w.step();
    }
    let mut outputs = String::new();
    let values = w.values.clone();
    for (i, (name, shape)) in values.iter().skip(5).enumerate() {
        let (extents, place) = match shape {
            Both => (format!("[2, {rows}, {columns}]"), "[cta.x, :, :]"),
            Rows => (format!("[2, {rows}]"), "[cta.x, :]"),
            Columns => (format!("[2, {columns}]"), "[cta.x, :]"),
            Scalar => ("[2]".to_owned(), "[cta.x]"),
        };
        outputs.push_str(&format!("    output o{i} : gmem f32{extents},\n"));
        w.line(&format!("store {name} -> o{i}{place};"));
    }
    format!(
        "target sm_90a;\nkernel k(\n    input a : gmem f32[{rows}, {columns}],\n    input b : gmem \
         bf16[{rows}, {columns}],\n    input c : gmem f32[{rows}],\n    input d : gmem f32[{columns}],\n    \
         input e : gmem f32[2],\n{outputs}    scalar n : i32 in 0..4,\n)\nlaunch {{ grid: 2, warps: \
         {warps}, pdl: none }}\n{{\n{}}}\n",
        w.text
    )
}

#[test]
fn generated_kernels_have_the_same_bits_at_both_levels() {
    let mut compared = 0;
    for seed in 0..KERNELS {
        let text = kernel_text(seed);
        let mut sources = SourceMap::new();
        let file = sources.add("generated.tile", text.clone());
        let front = pipeline::front(&mut sources, file, &mut |path| Err(path.to_owned()));
        assert!(!front.has_errors(), "seed {seed}: {:?}\n{text}", front.diagnostics);
        let built = match pipeline::build(&front.templates[0], &Bindings::new(), Target::Sm90a) {
            Ok(built) => built,
            Err(found) => {
                let skipped = found.iter().all(|d| d.code.name() == "E0310");
                assert!(skipped, "seed {seed}: {found:?}\n{text}");
                continue;
            }
        };
        let mut memory = Memory::new(&built.kernel.params);
        memory.fill_missing(&built.kernel.params, seed).expect("every argument can be drawn");
        let mut other = memory.clone();
        let kernel = run_kernel(&built.kernel, &mut memory, &Options::STANDARD);
        let device = run_device(&built.device, &mut other, &Options::STANDARD);
        kernel.unwrap_or_else(|e| panic!("seed {seed}: kernel level: {e}\n{text}"));
        device.unwrap_or_else(|e| panic!("seed {seed}: device level: {e}\n{text}"));
        for (id, param) in built.kernel.params.iter_enumerated() {
            assert_eq!(
                memory.argument(id),
                other.argument(id),
                "seed {seed}: `{}` differs\n{text}",
                param.name
            );
        }
        compared += 1;
    }
    assert!(compared * 3 > KERNELS * 2, "only {compared} of {KERNELS} kernels were compared");
}
