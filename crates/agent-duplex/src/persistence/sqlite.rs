/// x
#[derive(Debug)]
pub struct SqlitePersistence;
/// x
#[derive(Debug)]
pub struct KeptMessage;
