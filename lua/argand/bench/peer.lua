--- peer: a Python process with PyTorch that times cases on request. Commands go through a pipe, answers come through a fifo.
local core = require "argand.core"

local M = {}
M.__index = M

-- Where the script lies in the source tree, from the place of this file; an installed library comes without it.
local function script_path()
  local directory = debug.getinfo(1, "S").source:match("^@(.*)lua/argand/bench/peer%.lua$")
  return directory and directory .. "spec/bench/torch_peer.py"
end

local function exists(path)
  local file = path and io.open(path)
  if file then file:close() end
  return file ~= nil
end

local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

--- Starts the peer; nil and the reason when it cannot run.
---@return table|nil peer, string|nil reason
function M.open()
  local script, python = script_path(), os.getenv("ARGAND_PYTHON") or "/usr/bin/python3"
  if not exists(script) then return nil, "its script spec/bench/torch_peer.py is not beside the library" end
  if not exists(python) then return nil, "there is no " .. python end
  local fifo = os.tmpname()
  os.remove(fifo)
  if os.execute("mkfifo -m 600 " .. quoted(fifo)) ~= 0 then return nil, "no fifo could be made" end
  -- The shell opens the fifo for Python, so reading ends rather than waits when Python cannot start.
  local commands = io.popen(("%s %s > %s 2>/dev/null"):format(quoted(python), quoted(script), quoted(fifo)), "w")
  local answers = io.open(fifo)
  os.remove(fifo)
  local version = answers and answers:read("*l")
  if not version then
    commands:close()
    return nil, python .. " has no torch"
  end
  return setmetatable({ commands = commands, answers = answers, version = version }, M)
end

--- Seconds that `count` runs of a case take with `threads` threads; nil for a case that the peer has not.
---@param name string
---@param count integer
---@param threads integer
---@return number|nil
function M:time(name, count, threads)
  self.commands:write(("%d\t%d\t%s\n"):format(threads, count, name))
  self.commands:flush()
  local answer = self.answers:read("*l")
  if not answer then core.raise("value", "bench", "the PyTorch process ended during " .. name) end
  return tonumber(answer)
end

--- Ends the process.
function M:close()
  self.commands:close()
  self.answers:close()
end

return M
