CREATE TABLE conversation (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- A writer with a lower epoch may not write any more.
    epoch INTEGER NOT NULL,
    session TEXT
) STRICT;

-- An input without a message waits; an input with a message and without a turn was delivered.
CREATE TABLE input (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversation,
    receipt BLOB NOT NULL,
    input_id TEXT NOT NULL,
    accepted_ns INTEGER NOT NULL,
    duplicate INTEGER NOT NULL,
    parent INTEGER,
    text TEXT NOT NULL,
    message BLOB,
    turn INTEGER,
    dropped INTEGER NOT NULL DEFAULT 0,
    UNIQUE (conversation, receipt)
) STRICT;
CREATE INDEX input_order ON input (conversation, sequence);
CREATE INDEX input_open ON input (conversation, sequence) WHERE turn IS NULL AND dropped = 0;
CREATE INDEX input_handed ON input (conversation, message) WHERE message IS NOT NULL AND turn IS NULL AND dropped = 0;

-- A turn without a reason has not ended.
CREATE TABLE turn (
    conversation INTEGER NOT NULL REFERENCES conversation,
    number INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    parent INTEGER,
    forked INTEGER NOT NULL,
    reason TEXT,
    detail TEXT,
    PRIMARY KEY (conversation, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_running ON turn (conversation, number) WHERE reason IS NULL;

CREATE TABLE message (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversation,
    turn INTEGER,
    text TEXT NOT NULL,
    partial INTEGER NOT NULL
) STRICT;
CREATE INDEX message_order ON message (conversation, sequence);
