//! Numbers of options and of replies to options.

/// `NBD_OPT_EXPORT_NAME`
pub const EXPORT_NAME: u32 = 1;
/// `NBD_OPT_ABORT`
pub const ABORT: u32 = 2;
/// `NBD_OPT_LIST`
pub const LIST: u32 = 3;
/// `NBD_OPT_STARTTLS`
pub const STARTTLS: u32 = 5;
/// `NBD_OPT_INFO`
pub const INFO: u32 = 6;
/// `NBD_OPT_GO`
pub const GO: u32 = 7;
/// `NBD_OPT_STRUCTURED_REPLY`
pub const STRUCTURED_REPLY: u32 = 8;
/// `NBD_OPT_LIST_META_CONTEXT`
pub const LIST_META_CONTEXT: u32 = 9;
/// `NBD_OPT_SET_META_CONTEXT`
pub const SET_META_CONTEXT: u32 = 10;
/// `NBD_OPT_EXTENDED_HEADERS`
pub const EXTENDED_HEADERS: u32 = 11;

/// `NBD_INFO_EXPORT`: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// `NBD_INFO_NAME`: the export's canonical name.
pub const INFO_NAME: u16 = 1;
/// `NBD_INFO_DESCRIPTION`: a description for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// `NBD_INFO_BLOCK_SIZE`: smallest, preferred and largest request.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// `NBD_REP_ACK`
pub const REP_ACK: u32 = 1;
/// `NBD_REP_SERVER`
pub const REP_SERVER: u32 = 2;
/// `NBD_REP_INFO`
pub const REP_INFO: u32 = 3;
/// `NBD_REP_META_CONTEXT`
pub const REP_META_CONTEXT: u32 = 4;
/// The bit that is set in the numbers of all error replies.
pub const REP_ERROR_BIT: u32 = 1 << 31;
/// `NBD_REP_ERR_UNSUP`
pub const ERR_UNSUP: u32 = REP_ERROR_BIT + 1;
/// `NBD_REP_ERR_POLICY`
pub const ERR_POLICY: u32 = REP_ERROR_BIT + 2;
/// `NBD_REP_ERR_INVALID`
pub const ERR_INVALID: u32 = REP_ERROR_BIT + 3;
/// `NBD_REP_ERR_PLATFORM`
pub const ERR_PLATFORM: u32 = REP_ERROR_BIT + 4;
/// `NBD_REP_ERR_TLS_REQD`
pub const ERR_TLS_REQD: u32 = REP_ERROR_BIT + 5;
/// `NBD_REP_ERR_UNKNOWN`
pub const ERR_UNKNOWN: u32 = REP_ERROR_BIT + 6;
/// `NBD_REP_ERR_SHUTDOWN`
pub const ERR_SHUTDOWN: u32 = REP_ERROR_BIT + 7;
/// `NBD_REP_ERR_BLOCK_SIZE_REQD`
pub const ERR_BLOCK_SIZE_REQD: u32 = REP_ERROR_BIT + 8;
/// `NBD_REP_ERR_TOO_BIG`
pub const ERR_TOO_BIG: u32 = REP_ERROR_BIT + 9;
