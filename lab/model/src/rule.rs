//! What can be found wrong with a world.

use std::fmt;

/// What can be found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Locks in use are compatible.
    I1,
    /// Sequence numbers rise.
    I2,
    /// The highest sequence number wins, whatever trimming has forgotten (I3 and I6).
    I3,
    /// One flush of a byte at a time.
    I4,
    /// A read returns the newest write.
    I5,
    /// Calls are atomic across stripes, in an order that real time allows.
    I5Whole,
    /// What was lost with a client stays lost.
    I7,
    /// Every operation returns.
    I8,
    /// What fsync promised is durable; what nobody has lost is somewhere.
    I9,
    /// No rule panics.
    Panic,
    /// Nobody breaks the protocol, and nothing is refused or fails without a fault.
    Protocol,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 11] = [
        Rule::I1,
        Rule::I2,
        Rule::I3,
        Rule::I4,
        Rule::I5,
        Rule::I5Whole,
        Rule::I7,
        Rule::I8,
        Rule::I9,
        Rule::Panic,
        Rule::Protocol,
    ];

    /// The rule in words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Rule::I1 => "I1: locks in use are compatible",
            Rule::I2 => "I2: sequence numbers rise",
            Rule::I3 => "I3, I6: the device has what the highest sequence number brought",
            Rule::I4 => "I4: one flush of a byte at a time",
            Rule::I5 => "I5: a read returns the newest write",
            Rule::I5Whole => "I5: calls are atomic across stripes and in real time",
            Rule::I7 => "I7: what is lost with a client stays lost",
            Rule::I8 => "I8: every operation returns",
            Rule::I9 => "I9: what fsync promised is durable, and nothing is lost silently",
            Rule::Panic => "no rule panics",
            Rule::Protocol => "nobody breaks the protocol, and nothing fails without a fault",
        }
    }
}

/// Something found wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broken {
    /// Which rule.
    pub rule: Rule,
    /// What, for a person.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken: {}", self.rule.about(), self.what)
    }
}

/// What a step may find.
pub type Found = Result<(), Broken>;

/// Says what is broken.
pub fn broken(rule: Rule, what: String) -> Found {
    Err(Broken { rule, what })
}
