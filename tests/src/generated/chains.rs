//! Chains of producers and consumers of one tile in shared memory, each with what has to stand between it and the next.

use super::{Item, Template};

/// What fills the tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Producer {
    /// Stores of all threads.
    Threads,
    /// `copy.async`.
    Copies,
}

/// What uses the tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumer {
    /// Loads of what other threads have.
    Threads,
    /// A tensor copy out of shared memory.
    CopyOut,
    /// A product of a warpgroup, of which the tile is an operand.
    Wgmma,
    /// A product of `mma_sync`, of which it is one.
    MmaSync,
}

impl Producer {
    /// All of them.
    pub const ALL: [Producer; 2] = [Producer::Threads, Producer::Copies];

    const fn name(self) -> &'static str {
        match self {
            Producer::Threads => "stores",
            Producer::Copies => "copy.async",
        }
    }
}

impl Consumer {
    /// All of them.
    pub const ALL: [Consumer; 4] =
        [Consumer::Threads, Consumer::CopyOut, Consumer::Wgmma, Consumer::MmaSync];

    const fn name(self) -> &'static str {
        match self {
            Consumer::Threads => "loads",
            Consumer::CopyOut => "copy.tma",
            Consumer::Wgmma => "wgmma",
            Consumer::MmaSync => "mma_sync",
        }
    }

    const fn is_product(self) -> bool {
        matches!(self, Consumer::Wgmma | Consumer::MmaSync)
    }
}

/// Every producer with every consumer, and every consumer with the producer that fills the tile again.
pub fn all() -> Vec<Template> {
    let mut templates = Vec::new();
    for consumer in Consumer::ALL {
        for first in Producer::ALL {
            for second in Producer::ALL {
                templates.push(chain(&[(first, consumer), (second, Consumer::Threads)]));
            }
        }
    }
    for producer in Producer::ALL {
        templates.push(chain(&[(producer, Consumer::CopyOut), (producer, Consumer::CopyOut)]));
    }
    templates
}

/// A chain.
pub fn chain(links: &[(Producer, Consumer)]) -> Template {
    let names: Vec<String> = links
        .iter()
        .map(|(producer, consumer)| format!("{} > {}", producer.name(), consumer.name()))
        .collect();
    let mut chain = Template {
        name: names.join(" > "),
        launches: 1,
        items: Vec::with_capacity(16 * links.len()),
    };
    let count = links.len();
    let outputs: Vec<String> = links
        .iter()
        .enumerate()
        .map(|(n, (_, consumer))| match consumer.is_product() {
            true => format!("output y{n} : gmem f32[64, 8]"),
            false => format!("output y{n} : gmem bf16[64, 16]"),
        })
        .collect();
    let has = |consumer| links.iter().any(|(_, own)| *own == consumer);
    chain.line("target sm_90a;");
    chain.line(&format!(
        "kernel k(input x : gmem bf16[{count}, 64, 16], input w : gmem bf16[8, 16], {})",
        outputs.join(", ")
    ));
    chain.line("launch { grid: 1, warps: 4, pdl: none }");
    chain.line("{");
    chain.line("    smem s : bf16[64, 16] swizzle b32;");
    if has(Consumer::Wgmma) {
        chain.line("    atom MMA = wgmma(m = 64, n = 8, k = 16, a = bf16, b = bf16, d = f32);");
        chain.line("    smem b : bf16[8, 16] swizzle b32;");
        chain.line("    store load w -> b;");
    }
    for (n, (producer, consumer)) in links.iter().enumerate() {
        let before = n.checked_sub(1).map(|before| links[before].1);
        chain.reuse(before, n);
        chain.fill(*producer, *consumer, n);
        chain.take(*consumer, n);
    }
    for (n, (_, consumer)) in links.iter().enumerate() {
        match consumer {
            Consumer::CopyOut => chain.part(&format!("settle y{n};")),
            Consumer::Wgmma => chain.line(&format!("    store acc{n} -> y{n};")),
            Consumer::Threads | Consumer::MmaSync => {}
        }
    }
    chain.line("}");
    chain
}

impl Template {
    fn line(&mut self, line: &str) {
        self.items.push(Item::Line(line.to_owned()));
    }

    fn part(&mut self, part: &str) {
        self.items.push(Item::Part(vec![part.to_owned()]));
    }

    fn fill(&mut self, producer: Producer, consumer: Consumer, n: usize) {
        match producer {
            Producer::Threads => self.line(&format!("    store load x[{n}, :, :] -> s;")),
            Producer::Copies => {
                self.line(&format!("    copy.async x[{n}, :, :] -> s;"));
                self.items.push(Item::Part(vec!["settle s;".into(), "settle s but 1;".into()]));
            }
        }
        if consumer == Consumer::CopyOut {
            self.part("publish s;");
        }
        self.part("sync;");
    }

    fn take(&mut self, consumer: Consumer, n: usize) {
        match consumer {
            Consumer::Threads => {
                self.line(&format!("    store load s[63 - iota(64), :] -> y{n};"));
            }
            Consumer::CopyOut => {
                self.line(&format!("    copy.tma s -> y{n}.tile(64, 16)[0, 0];"));
            }
            Consumer::Wgmma => {
                self.line(&format!("    frag acc{n} : f32[64, 8] = 0.0;"));
                self.line(&format!("    mma s * b^T -> acc{n} via MMA;"));
                self.line("    commit;");
                self.part(&format!("settle acc{n};"));
            }
            Consumer::MmaSync => {
                self.line(&format!("    store dot(s, load w) via mma_sync -> y{n};"));
            }
        }
    }

    /// What stands between a use of the tile and what fills it again.
    fn reuse(&mut self, before: Option<Consumer>, n: usize) {
        let Some(before) = before else { return };
        if before == Consumer::CopyOut {
            let all = format!("settle y{};", n - 1);
            self.items.push(Item::Part(vec!["settle s;".into(), "settle s but 1;".into(), all]));
        }
        self.part("sync;");
    }
}
