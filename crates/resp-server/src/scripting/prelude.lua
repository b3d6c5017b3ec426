-- What scripts see: the globals of the sandbox, and the functions of `redis`.
--
-- Runs once for each worker, with the functions of the server in `host`. Returns the environment
-- of scripts, the table of its globals, and the function that runs a script.
-- What must know the line of an error is a function of the server: a Lua function that is called
-- last takes the place of its caller.

local host = ...
local error, type, select, next = error, type, select, next
local setmetatable, getmetatable, rawset, tostring = setmetatable, getmetatable, rawset, tostring
local pcall, xpcall, tonumber = pcall, xpcall, tonumber

local READONLY = "Attempt to modify a readonly table"

-- Tables that scripts cannot change.
local locked = setmetatable({}, { __mode = "k" })

local function refuse()
  error(READONLY, 2)
end

local function lock(table)
  local view = setmetatable({}, { __index = table, __newindex = refuse, __metatable = false })
  locked[view] = true
  return view
end

-- The methods of strings come from a table that scripts never get.
getmetatable("").__metatable = lock({})
string.dump = nil

-- Values that a call may return: Lua's limit of its stack for a function in C.
local RESULTS_MAX = 8000
-- Longer patterns are looked at before they are used, and may have so many items that repeat or
-- capture.
local PATTERN_BYTES_MAX = 1000
local PATTERN_ITEMS_MAX = 1000

-- Lua computes the number of results with 32 bits, and writes beyond its stack after an overflow
-- (CVE-2025-46817). Here it is computed with doubles. No number reaches the C code that does not
-- fit into 32 bits.
local unpack = unpack
local function checked_unpack(list, first, last)
  if type(list) == "table" then
    first = first == nil and 1 or tonumber(first) or first
    last = last == nil and #list or tonumber(last) or last
    if type(first) == "number" and type(last) == "number" then
      if first > last then
        return
      end
      if not (last - first < RESULTS_MAX and -2 ^ 31 <= first and last < 2 ^ 31) then
        error("too many results to unpack", 2)
      end
    end
  end
  return unpack(list, first, last)
end

-- Lua's matcher calls itself for each item that repeats or captures, and overflows the C stack
-- with too many of them.
local find, match, gmatch, gsub = string.find, string.match, string.gmatch, string.gsub
local function check_pattern(pattern)
  if type(pattern) == "string" and #pattern > PATTERN_BYTES_MAX
    and select(2, gsub(pattern, "[-*+?()]", "")) > PATTERN_ITEMS_MAX then
    error("pattern too complex", 3)
  end
end

function string.find(text, pattern, first, is_plain)
  if not is_plain then
    check_pattern(pattern)
  end
  return find(text, pattern, first, is_plain)
end

function string.match(text, pattern, first)
  check_pattern(pattern)
  return match(text, pattern, first)
end

function string.gmatch(text, pattern)
  check_pattern(pattern)
  return gmatch(text, pattern)
end
string.gfind = string.gmatch

function string.gsub(text, pattern, replacement, most)
  check_pattern(pattern)
  return gsub(text, pattern, replacement, most)
end

local function failure(text)
  return { err = text }
end

-- It writes without a look at the metatable. `table.remove` and `table.sort` do too, but only where
-- there are elements: these tables have none of their own.
local insert = table.insert
function table.insert(target, ...)
  if locked[target] then
    error(failure("ERR " .. READONLY), 0)
  end
  return insert(target, ...)
end

local redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  SERVER_NAME = "valkey",
  REDIS_VERSION = host.redis_version, REDIS_VERSION_NUM = host.redis_version_number,
  VALKEY_VERSION = host.version, VALKEY_VERSION_NUM = host.version_number,
}

local function one_field(field, ...)
  local value = ...
  if select("#", ...) ~= 1 or type(value) ~= "string" then
    return failure("ERR wrong number or type of arguments")
  end
  return { [field] = value }
end

function redis.status_reply(...)
  return one_field("ok", ...)
end

function redis.error_reply(...)
  local reply = one_field("err", ...)
  local text = reply.err
  if text:sub(1, 1) == "-" then
    text = text:sub(2)
  end
  -- An error has a code in front.
  if not text:find(" ", 1, true) then
    text = "ERR " .. text
  end
  reply.err = text
  return reply
end

redis.sha1hex, redis.log, redis.set_repl = host.sha1hex, host.log, host.set_repl
redis.setresp = host.setresp
redis.call, redis.pcall = host.call, host.pcall

-- There are no replicas, so that nothing is replicated in another way.
function redis.replicate_commands()
  return true
end

function redis.acl_check_cmd(...)
  return host.is_command((...))
end

function redis.breakpoint()
  return false
end

function redis.debug()
end

local allowed = {
  tostring = tostring, next = next, assert = assert, tonumber = tonumber, rawequal = rawequal,
  type = type, select = select, unpack = checked_unpack, pairs = pairs, rawget = rawget, ipairs = ipairs,
  error = error, getmetatable = getmetatable, _VERSION = _VERSION,
  string = lock(string), table = lock(table), math = lock(math), coroutine = lock(coroutine),
  os = lock({ clock = host.clock }),
  cjson = lock(host.cjson), cmsgpack = lock(host.cmsgpack), bit = lock(host.bit),
}
allowed.redis = lock(redis)
allowed.server = allowed.redis

function allowed.rawset(target, key, value)
  if locked[target] then
    error(failure("ERR " .. READONLY), 0)
  end
  return rawset(target, key, value)
end

function allowed.setmetatable(target, meta)
  if locked[target] then
    error(failure("ERR " .. READONLY), 0)
  end
  return setmetatable(target, meta)
end

function allowed.collectgarbage(option)
  return option == "count" and host.kilobytes() or 0
end

function allowed.gcinfo()
  return host.kilobytes()
end

-- The reason of an error as scripts know it: errors of the server are tables too, and none is told
-- to be at a line of this file.
local function known(reason)
  if type(reason) == "userdata" then
    return failure(host.text(reason))
  end
  if type(reason) == "string" then
    return (gsub(reason, "^prelude:%d+: ", ""))
  end
  return reason
end

-- A script that must end cannot go on by catching that.
local function finished(is_whole, ...)
  if is_whole then
    return true, ...
  end
  local reason = ...
  if host.is_over() then
    error(reason, 0)
  end
  return false, known(reason)
end

-- Scripts that catch an error of a command get its text.
local function caught(is_whole, ...)
  local reason = ...
  if not is_whole and type(reason) == "table" and type(reason.err) == "string" then
    return false, reason.err
  end
  return is_whole, ...
end

function allowed.pcall(...)
  return caught(finished(pcall(...)))
end

function allowed.xpcall(action, handler)
  return finished(xpcall(action, function(reason)
    return handler(known(reason))
  end))
end

local resume = coroutine.resume
function coroutine.resume(...)
  return finished(resume(...))
end

setmetatable(allowed, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})

local environment = lock(allowed)
rawset(allowed, "_G", environment)

-- Adds the place to an error that nothing has caught.
local function described(reason)
  reason = known(reason)
  if type(reason) ~= "table" then
    reason = failure("ERR " .. tostring(reason))
  end
  local source, line = host.place()
  if source then
    reason.source, reason.line = source, line
  end
  return reason
end

local function run(script, keys, words)
  allowed.KEYS, allowed.ARGV = keys, words
  return xpcall(script, described)
end

return environment, allowed, run
