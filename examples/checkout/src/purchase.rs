//! Who asks for what: the services of the shop, and the name of one try, which travels with it in a header.
//!
//! The services pass the header on and never look at it, but for the article. It is there for the witness.

use http::HeaderMap;
use serde::Serialize;

/// A service of the shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// What the app talks to.
    Gateway,
    /// Asks the three below, then has the money taken.
    Order,
    /// Keeps an article for the order.
    Inventory,
    /// Works out the price.
    Pricing,
    /// What else one may like; an order can do without.
    Recommendations,
    /// Takes the money, and keeps a record of it.
    Payment,
}

/// One try of the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Try {
    /// The purchase: what the user wants to happen once.
    pub(crate) tap: usize,
    /// How often the user has come for it.
    pub(crate) visit: u32,
    /// How often the app has tried during this visit.
    pub(crate) number: u32,
    /// What is bought.
    pub(crate) article: u32,
}

/// The header that carries a [`Try`].
pub(crate) const TRY: &str = "x-demo-try";

// === Service ===

impl Service {
    /// All of them, callers first.
    pub const ALL: [Self; 6] =
        [Self::Gateway, Self::Order, Self::Inventory, Self::Pricing, Self::Recommendations, Self::Payment];

    /// Its name, in the output and in ledgers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Order => "order",
            Self::Inventory => "inventory",
            Self::Pricing => "pricing",
            Self::Recommendations => "recommendations",
            Self::Payment => "payment",
        }
    }

    /// What it does for one request.
    pub fn path(self) -> &'static str {
        match self {
            Self::Gateway => "/checkout",
            Self::Order => "/order",
            Self::Inventory => "/reserve",
            Self::Pricing => "/price",
            Self::Recommendations => "/suggest",
            Self::Payment => "/charge",
        }
    }
}

// === Try ===

impl Try {
    /// As the header carries it.
    pub(crate) fn to_field(self) -> String {
        format!("{}.{}.{}.{}", self.tap, self.visit, self.number, self.article)
    }

    /// As a record carries it: tap, visit, number, article.
    pub(crate) fn columns(self) -> [i64; 4] {
        [i64::try_from(self.tap).unwrap_or(i64::MAX), self.visit.into(), self.number.into(), self.article.into()]
    }

    /// From the header; a request that carries none, such as one by hand, is the first try of tap 0 for article 0.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let field = headers.get(TRY).and_then(|field| field.to_str().ok()).unwrap_or_default();
        let mut numbers = field.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Self { tap: next() as usize, visit: next(), number: next(), article: next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_survives_its_header() -> Result<(), http::header::InvalidHeaderValue> {
        let of = Try { tap: 7, visit: 2, number: 3, article: 9 };
        let mut headers = HeaderMap::new();
        headers.insert(TRY, of.to_field().parse()?);
        assert_eq!(Try::of(&headers), of);
        Ok(())
    }
}
