//! Choosing a token from logits.

use kernel_abi::numeric::random;

/// How a token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the greatest.
    pub temperature: f32,
    /// The choice is among the likeliest tokens that together have this probability.
    pub top_p: f32,
}

/// A reproducible source of random numbers: those of [`kernel_abi::numeric::random`].
#[derive(Debug, Clone)]
pub struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Random {
        Random { seed, drawn: 0 }
    }

    /// A number at least 0 and below 1.
    pub fn unit(&mut self) -> f64 {
        let word = random::word(self.seed, 0, self.drawn);
        self.drawn += 1;
        (word >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Sampling {
    /// The chosen index. NaN counts as minus infinity, ties go to the lowest index; 0 for no logits.
    pub fn choose(&self, logits: &[f32], random: &mut Random) -> usize {
        let value = |i: usize| if logits[i].is_nan() { f32::NEG_INFINITY } else { logits[i] };
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| value(b).total_cmp(&value(a)).then(a.cmp(&b)));
        let Some(&first) = order.first() else { return 0 };
        let top = f64::from(value(first));
        if self.temperature <= 0.0 || !top.is_finite() {
            return first;
        }
        let weight = |i: usize| ((f64::from(value(i)) - top) / f64::from(self.temperature)).exp();
        let total: f64 = order.iter().map(|&i| weight(i)).sum();
        let mut kept = 0.0;
        let mut count = 0;
        for &i in &order {
            kept += weight(i);
            count += 1;
            if kept >= f64::from(self.top_p) * total {
                break;
            }
        }
        let mut left = random.unit() * kept;
        for &i in &order[..count] {
            left -= weight(i);
            if left < 0.0 {
                return i;
            }
        }
        order[count - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_temperature_takes_the_first_of_the_greatest() {
        let greedy = Sampling { temperature: 0.0, top_p: 1.0 };
        let mut random = Random::new(1);
        assert_eq!(greedy.choose(&[1.0, 3.0, f32::NAN, 3.0], &mut random), 1);
        assert_eq!(greedy.choose(&[], &mut random), 0);
    }

    #[test]
    fn samples_follow_the_probabilities_within_the_nucleus() {
        let logits = [0.0, 1.0, 2.0, -1.0];
        let all = Sampling { temperature: 1.0, top_p: 1.0 };
        let mut random = Random::new(7);
        let mut counts = [0u32; 4];
        for _ in 0..20_000 {
            counts[all.choose(&logits, &mut random)] += 1;
        }
        let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        for (count, logit) in counts.iter().zip(logits) {
            let share = f64::from(*count) / 20_000.0;
            assert!((share - f64::from(logit).exp() / total).abs() < 0.015);
        }
        let nucleus = Sampling { temperature: 1.0, top_p: 0.6 };
        for _ in 0..200 {
            assert_eq!(nucleus.choose(&logits, &mut random), 2);
        }
    }
}
