--- launcher: `argand run` or another command as a child process with a folder of its own, read while it runs or to its end.
--
--   local launcher = require("support.launcher").new()
--   local script = launcher:write_file("says.lua", "print 'hello'")
--   local code, out, err = launcher:run {"-n", "2", script}
--   launcher:remove()
local core = require "argand.core"
local command = require("support.terminal").this_command()
local process = core.process

local M = {}

local LIMIT_S = 25 -- of anything: what takes longer hangs; scripts whose end has to come from the launcher sleep longer
local SIGKILL = 9

local Launcher = {}
Launcher.__index = Launcher
local Child = {}
Child.__index = Child

--- A folder for scripts, where launchers run and find programs; their temporary files lie in <folder>/tmp.
function M.new()
  local folder = assert(process.temporary_folder())
  assert(process.make_folder(folder .. "/tmp"))
  return setmetatable({folder = folder}, Launcher)
end

--- Writes a file of the folder. Returns its path.
function Launcher:write_file(name, text)
  local path = self.folder .. "/" .. name
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

--- The same for a program, which can be run by its name.
function Launcher:write_program(name, text)
  local path = self:write_file(name, text)
  assert(os.execute(("chmod +x '%s'"):format(path)) == 0)
  return name
end

--- Removes the folder; whether it is gone.
function Launcher:remove()
  os.execute(("rm -rf '%s'"):format(self.folder))
  return io.open(self.folder) == nil
end

--- Starts a command by its words. opts: env = {NAME = value, or false for none}, cwd, processors that it may use.
function Launcher:spawn(argv, opts)
  opts = opts or {}
  local changes = {TMPDIR = self.folder .. "/tmp", PATH = self.folder .. ":" .. (os.getenv "PATH" or "/usr/bin:/bin")}
  for name, value in pairs(opts.env or {}) do changes[name] = value end
  local env = {}
  for _, entry in ipairs(process.environment()) do
    if changes[entry:match "^[^=]*"] == nil then env[#env + 1] = entry end
  end
  for name, value in pairs(changes) do
    if value then env[#env + 1] = name .. "=" .. value end
  end
  local child = assert(process.spawn {argv = argv, env = env, cwd = opts.cwd or self.folder, stdin = "null", stdout = "pipe",
                                      stderr = "pipe", processors = opts.processors})
  child.out, child.err = "", ""
  return setmetatable(child, Child)
end

--- Starts `argand run` with arguments; opts.wrapper: words before it.
function Launcher:start(args, opts)
  local argv = {}
  for _, words in ipairs {opts and opts.wrapper or {}, {command, "run"}, args} do
    for _, word in ipairs(words) do argv[#argv + 1] = word end
  end
  return self:spawn(argv, opts)
end

--- The same to its end. Returns its exit code, or minus the signal, what it wrote to stdout and to stderr.
function Launcher:run(args, opts)
  local child = self:start(args, opts)
  local code = child:finish()
  return code, child.out, child.err
end

--- Reads until is_enough() or until both streams have ended.
function Child:read(is_enough)
  local deadline = core.now() + LIMIT_S
  while not (is_enough and is_enough()) do
    local fds = {}
    for _, slot in ipairs {"stdout", "stderr"} do fds[#fds + 1] = self[slot] or nil end
    if #fds == 0 then return end
    if core.now() > deadline then
      process.kill(self.pid, SIGKILL)
      error(("no end within %d s; stdout: %s stderr: %s"):format(LIMIT_S, self.out, self.err), 2)
    end
    for _, fd in ipairs(process.poll(fds, nil, 1)) do
      local bytes = process.read(fd)
      if bytes == false then
        process.close(fd)
        if fd == self.stdout then self.stdout = nil else self.stderr = nil end
      elseif fd == self.stdout then
        self.out = self.out .. (bytes or "")
      else
        self.err = self.err .. (bytes or "")
      end
    end
  end
end

--- Reads until it has written what matches the pattern.
function Child:expect(pattern)
  self:read(function() return (self.out .. self.err):find(pattern) end)
  assert((self.out .. self.err):find(pattern), ("expected %s, got %s%s"):format(pattern, self.out, self.err))
end

--- The exit code, or minus the signal, once all output was read.
function Child:finish()
  self:read()
  local deadline = core.now() + LIMIT_S
  repeat
    local pid, code, signal = process.wait()
    if pid == self.pid then return code or -signal end
    if not pid then process.poll({}, nil, 0.005) end
  until core.now() > deadline
  process.kill(self.pid, SIGKILL)
  error "the launcher does not end"
end

return M
