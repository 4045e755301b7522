--- ranks: groups of processes that wait for commands and answer with a line each, for benches of jobs.
--
-- A process that has nothing to do sleeps in read. Every wait has a deadline. Processes die with this one.
local core = require "argand.core"

local plan = require "argand.run.plan"

local process = core.process

local M = {}
local Group = {}
Group.__index = Group

local START_S, CLOSE_S = 60, 5
local SIGTERM, SIGKILL = 15, 9

local ended = {} -- pids whose end was seen: waiting takes any child

--- The environment of this process with some variables changed, as a list of "NAME=value".
---@param changes table<string, any>
---@return string[]
function M.environment(changes)
  local values = {}
  for _, entry in ipairs(process.environment()) do
    local name, value = entry:match "^([^=]*)=(.*)$"
    if name then values[name] = value end
  end
  for name, value in pairs(changes) do values[name] = tostring(value) end
  local list = {}
  for name, value in pairs(values) do list[#list + 1] = name .. "=" .. value end
  return list
end

--- The path of a script in spec/bench; nil and the reason where the library was installed without it.
---@param name string
---@return string|nil path, string|nil reason
function M.script(name)
  local directory = debug.getinfo(1, "S").source:match "^@(.*)lua/argand/bench/ranks%.lua$"
  local path = directory and directory .. "spec/bench/" .. name
  local file = path and io.open(path)
  if not file then return nil, "spec/bench/" .. name .. " is not beside the library: it is for source trees" end
  file:close()
  return path
end

--- The command for a rank of ours that runs a script with one thread.
---@param argv string[] script and arguments
---@param of {job: string, rank: integer, size: integer, transport?: string, key?: string}
---@return {argv: string[], env: string[]}
function M.command(argv, of)
  return { argv = { process.self().program, unpack(argv) }, env = M.environment { ARGAND_RANK = of.rank,
    ARGAND_WORLD_SIZE = of.size, ARGAND_LOCAL_RANK = of.rank, ARGAND_LOCAL_WORLD_SIZE = of.size, ARGAND_JOB = of.job,
    ARGAND_COORDINATOR = "ipc://@argand-" .. of.job, ARGAND_TRANSPORT = of.transport or "", ARGAND_KEY_FILE = of.key or "",
    ARGAND_THREADS = 1 } }
end

--- Binds each command to a processor of its own, and of a core of its own, where there are enough.
---@param commands {argv: string[], env: string[], processors?: integer[]}[]
function M.bind(commands)
  local processors = process.processors()
  local node = { bind = { before = 0, size = #commands }, ranks = commands }
  for i, share in ipairs(plan.shares(node, processors, plan.core_of(processors)) or {}) do
    commands[i].processors = { share[1] }
  end
end

local function reap()
  local pid = process.wait()
  while pid do
    ended[pid] = true
    pid = process.wait()
  end
end

-- Waits until all of these processes have ended, at most `seconds`.
local function wait_for_end(members, seconds)
  local deadline = core.now() + seconds
  while true do
    reap()
    local num_running = 0
    for _, member in ipairs(members) do
      if not ended[member.pid] then num_running = num_running + 1 end
    end
    if num_running == 0 then return true end
    if core.now() > deadline then return false end
    core.sleep(0.01)
  end
end

--- A folder for a run's files, and what removes it with them; that happens too when this process is killed.
---@return string folder, fun() remove
function M.folder()
  local folder, err = process.temporary_folder()
  if not folder then core.raise("file", "bench", err) end
  local pid, guard = process.guard(folder .. "/.")
  if not pid then
    os.remove(folder)
    core.raise("state", "bench", guard)
  end
  return folder, function()
    process.close(guard)
    wait_for_end({ { pid = pid } }, CLOSE_S)
  end
end

-- What a process said last: our message stands above the traceback, Python's below.
local function last_words(path)
  local file = io.open(path)
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text:match "argand: ([^\n]+)" or text:match "([^\n]+)\n*$"
end

-- A line of each process, or nil and what went wrong.
function Group:read_lines(seconds)
  local deadline, lines, missing = core.now() + seconds, {}, #self.members
  while true do
    local fds = {}
    for i, member in ipairs(self.members) do
      local line, rest = member.text:match "^([^\n]*)\n(.*)$"
      if line and not lines[i] then lines[i], member.text, missing = line, rest, missing - 1 end
      if not lines[i] then fds[#fds + 1] = member.stdout end
    end
    if missing == 0 then return lines end
    if core.now() > deadline then return nil, ("no answer from %s within %d s"):format(self.name, seconds) end
    core.sleep(0) -- Ctrl-C
    process.poll(fds, nil, 0.2)
    for i, member in ipairs(self.members) do
      local bytes = not lines[i] and process.read(member.stdout)
      if bytes then member.text = member.text .. bytes end
      if bytes == false and not lines[i] then
        return nil, ("%s: a process ended: %s"):format(self.name, last_words(self.stderr) or "without a word")
      end
    end
  end
end

--- Writes a line to each process and returns an answer of each; nil and the reason when one does not come.
---@param line string
---@param seconds number
---@return string[]|nil answers, string|nil reason
function Group:ask(line, seconds)
  for _, member in ipairs(self.members) do
    local count, err = process.write(member.stdin, line .. "\n")
    if not count then return nil, ("%s: %s"):format(self.name, err) end
  end
  return self:read_lines(seconds)
end

--- Ends the processes: by the end of their input, else by force.
function Group:close()
  for _, member in ipairs(self.members) do
    if member.stdin then process.close(member.stdin) end
  end
  for _, signal in ipairs { SIGTERM, SIGKILL } do
    if wait_for_end(self.members, CLOSE_S) then break end
    for _, member in ipairs(self.members) do
      if not ended[member.pid] then process.kill(-member.pid, signal) end
    end
  end
  wait_for_end(self.members, CLOSE_S)
  for _, member in ipairs(self.members) do
    if member.stdout then process.close(member.stdout) end
  end
  os.remove(self.stderr)
end

--- Starts processes that print a line "ready <text>" when they are; nil and the reason when one cannot.
---@param name string
---@param folder string for what they write to standard error
---@param commands {argv: string[], env: string[], processors?: integer[]}[]
---@return table|nil group, string|nil reason
function M.open(name, folder, commands)
  local group = setmetatable({ name = name, members = {}, stderr = ("%s/%s.err"):format(folder, name:gsub("%W", "-")) }, Group)
  local reason
  for _, command in ipairs(commands) do
    local member, err = process.spawn { argv = command.argv, env = command.env, stdin = "pipe", stdout = "pipe",
      stderr = group.stderr, processors = command.processors }
    if not member then
      reason = err
      break
    end
    member.text = ""
    group.members[#group.members + 1] = member
  end
  local lines
  if not reason then lines, reason = group:read_lines(START_S) end
  group.version = lines and lines[1]:match "^ready (.*)$"
  if group.version then return group end
  group:close()
  return nil, reason or ("%s said '%s'"):format(name, lines[1])
end

--- Runs a command to its end, at most `seconds`; true when its exit code was 0.
---@param argv string[]
---@param seconds number
---@return boolean
function M.run(argv, seconds)
  local member = process.spawn { argv = argv, env = process.environment(), stdin = "null", stdout = "null", stderr = "null" }
  local deadline = core.now() + seconds
  while member do
    local pid, code = process.wait()
    if pid then ended[pid] = true end
    if pid == member.pid then return code == 0 end
    if core.now() > deadline then
      process.kill(-member.pid, SIGKILL)
      wait_for_end({ member }, CLOSE_S)
      return false
    end
    if not pid then core.sleep(0.01) end
  end
  return false
end

--- Starts a process that keeps a processor busy; stop() ends it.
---@return fun() stop
function M.start_neighbour()
  local member = process.spawn { argv = { process.self().program, "-e", "while true do end" }, env = process.environment(),
    stdin = "null" }
  return function()
    process.kill(member.pid, SIGKILL)
    wait_for_end({ member }, CLOSE_S)
  end
end

return M
