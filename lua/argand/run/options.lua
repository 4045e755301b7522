--- options: the command line of `argand run`: what may be said, what was said, and what is wrong with it.
local core = require "argand.core"
local options = require "argand.options"

local M = {}

M.usage = [[
usage: argand run [options] script.lua [arguments]   start a job of several processes (ranks) that train together
  -n N               ranks; without it as many as the hosts have slots, or this machine has processors
  --hosts LIST       a:2,b:2 or node[1-4]:8: hosts and their slots; others than this one are reached by ssh
  --hostfile FILE    the same, lines of "host", "host slots=N" or "host:N"; # starts a comment
  --threads T        threads of a rank; without it processors divided by ranks of the host
  --bind             each rank on processors of its own: an equal share of its host's; without it ranks run on any
  --transport NAME   auto, shm, ipc or tcp
  --port P           where rank 0 listens when there are several hosts; without it 20000 to 29999, from the job's name
  --secure           encrypt and authenticate with a key made for this job; several hosts always do
  --key FILE         the same with a key made by `argand keygen FILE`
  --timeout S        seconds after which a rank that others wait for counts as lost
  --max-restarts K   after a failure start all ranks again, at most K times; scripts go on from their checkpoints
  --min-n M          restart without hosts that are gone, as long as M slots are left
  --grace S          seconds between SIGTERM and SIGKILL; 5
  --log-dir DIR      also write each rank's output to DIR/rank<r>.out and .err
  --no-prefix        lines of output without "[rank] "
  --env NAME[=VALUE] a variable that ranks on other hosts get, too
  --ssh COMMAND      instead of ssh: called with a host and a command line for its shell
  --net-test         measure latency and bandwidth between all pairs of ranks instead of running a script
  --dry-run          print every command and its environment, start nothing]]

local function whole(low, high)
  return {value = true, read = function(text)
    local number = text:find "^%d+$" and tonumber(text)
    if number and number >= low and number <= high then return number end
    return nil, ("a whole number from %d to %d"):format(low, high)
  end}
end

local function seconds(is_zero_fine)
  return {value = true, read = function(text)
    local number = tonumber(text)
    if number and number < 1e9 and (number > 0 or is_zero_fine and number == 0) then return number end
    return nil, is_zero_fine and "seconds" or "seconds above 0"
  end}
end

local function text_option(what)
  return {value = true, read = function(text)
    if text ~= "" then return text end
    return nil, what
  end}
end

local FLAG = {}
local TRANSPORTS = {auto = true, shm = true, ipc = true, tcp = true}

local known = {
  ["-n"] = whole(1, 65536),
  ["--hosts"] = text_option "a list of hosts",
  ["--hostfile"] = text_option "a file",
  ["--threads"] = whole(1, 256),
  ["--bind"] = FLAG,
  ["--transport"] = {value = true, read = function(text)
    if TRANSPORTS[text] then return text end
    return nil, "auto, shm, ipc or tcp"
  end},
  ["--port"] = whole(1, 65535),
  ["--secure"] = FLAG,
  ["--key"] = text_option "a file",
  ["--timeout"] = seconds(false),
  ["--max-restarts"] = whole(0, 1000000),
  ["--min-n"] = whole(1, 65536),
  ["--grace"] = seconds(true),
  ["--log-dir"] = text_option "a folder",
  ["--no-prefix"] = FLAG,
  ["--env"] = {value = true, is_list = true, read = function(text)
    if text:find "^[%a_][%w_]*$" or text:find "^[%a_][%w_]*=" then return text end
    return nil, "NAME or NAME=VALUE"
  end},
  ["--ssh"] = text_option "a command",
  ["--net-test"] = FLAG,
  ["--dry-run"] = FLAG,
  ["--help"] = FLAG,
  ["--agent"] = FLAG, -- the side of another host; internal
}

local function key_of(name) return (name:gsub("^%-+", ""):gsub("%-", "_")) end

local function refuse_unknown(name)
  local names = options.sorted_names(known)
  local near = options.nearest(name, names)
  core.raise("option", "run", ("unknown option %s"):format(name),
    near and ("did you mean %s?"):format(near) or "`argand run --help` lists all")
end

-- Splits "--name=value" and "-n4".
local function split(word)
  local name, value = word:match "^(%-%-[^=]+)=(.*)$"
  if name then return name, value end
  value = word:match "^%-n(%d+)$"
  if value then return "-n", value end
  return word, nil
end

-- Reads the option at args[i] into result; returns the position after it.
local function read_option(args, i, result)
  local name, value = split(args[i])
  local option = known[name]
  if name == "-h" then name, option = "--help", FLAG end
  if not option then refuse_unknown(name) end
  local key = key_of(name)
  if not option.value then
    if value then core.raise("option", "run", name .. " takes no value") end
    result[key] = true
    return i + 1
  end
  if not value then
    i = i + 1
    value = args[i]
    if value == nil then core.raise("option", "run", name .. " needs a value") end
  end
  local read, expected = option.read(value)
  if read == nil then core.raise("option", "run", ("%s: expected %s, got '%s'"):format(name, expected, value)) end
  if option.is_list then
    result[key] = result[key] or {}
    table.insert(result[key], read)
  else
    result[key] = read
  end
  return i + 1
end

local function check_together(result)
  if result.help or result.agent then return end
  if result.hosts and result.hostfile then core.raise("option", "run", "--hosts and --hostfile exclude each other") end
  if result.net_test and result.script then core.raise("option", "run", "--net-test runs a script of its own") end
  if not result.net_test and not result.script then
    core.raise("option", "run", "no script was given", "argand run [options] script.lua [arguments]")
  end
  if result.min_n and result.n and result.min_n > result.n then
    core.raise("option", "run", ("--min-n %d is more than -n %d"):format(result.min_n, result.n))
  end
  if result.min_n and not result.max_restarts then
    core.raise("option", "run", "--min-n is for restarts", "say also how many: --max-restarts K")
  end
end

--- Reads the arguments after `run`. Options end at the script or at `--`; what follows is the script's.
---@param args string[]
---@return table options by their names without dashes, and script, args
function M.parse(args)
  local result = {args = {}}
  local i = 1
  while args[i] and args[i]:sub(1, 1) == "-" and args[i] ~= "-" do
    if args[i] == "--" then
      i = i + 1
      break
    end
    i = read_option(args, i, result)
  end
  result.script = args[i]
  for k = i + 1, #args do table.insert(result.args, args[k]) end
  check_together(result)
  result.grace = result.grace or 5
  result.max_restarts = result.max_restarts or 0
  return result
end

return M
