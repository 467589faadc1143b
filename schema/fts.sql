-- Keyword index over prepared text, keyed by memory.rowid. Contentless: a row is removed with the 'delete' command and the
-- very text it was written with.
--   own    speaker, text and written-out date of the memory
--   ctx    the two turns before and after it
--   scope  three words: scopexu<n>x for the user's own scope n; scopexs<n>x for the memory's scope n; scopexw<n>x if it is visible from all
--          sessions of the user (a fact, pin or summary without a session), else scopexp<n>x
create virtual table memory_fts using fts5(
    own, ctx, scope,
    content = '',
    tokenize = 'porter unicode61 remove_diacritics 2'
);
-- How many memories hold a word, and where each word stands: views of the index, no data of their own.
create virtual table memory_word using fts5vocab(memory_fts, row);
create virtual table memory_word_place using fts5vocab(memory_fts, instance);
