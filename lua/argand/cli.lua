--- cli: what the command `argand` does with its arguments.
local M = {}

local usage = [[
usage: argand script.lua [arguments]   run a script
       argand -e "code" [arguments]    run a line of Lua; `ag` is the module
       argand                          a prompt; a script on standard input when that is no terminal
       argand info [--caps]            version, build, processor, threads, BLAS, devices; --caps: the capability matrix
       argand help [names]             what ops do, where they run, or functions (dist.register); without names all ops
       argand help --luacats           declarations of all ops and functions, for editors
       argand bench [names]            speed of this machine, beside PyTorch where it is installed
       argand run -n N script.lua      a job of N processes that train together; argand run --help: hosts, restarts, logs
       argand keygen FILE              a key for jobs on several hosts
       argand --version, argand --help]]

local CLOSE_S = 300

local commands = {info = true, help = true, bench = true, run = true, keygen = true}

local function traceback(err)
  if type(err) == "table" then return err end
  return debug.traceback(tostring(err), 2)
end

local function report(err)
  local progress = package.loaded["argand.progress"]
  if progress then progress.clear_line() end
  local text = tostring(err)
  if type(err) == "table" and type(err.traceback) == "string" then text = text .. "\n" .. err.traceback end
  io.stderr:write("argand: ", text, "\n")
  return 1
end

-- Runs a loaded chunk; the exit code is 0, 1 after an error, 130 after Ctrl-C. before_report(err), if any, is called first.
-- The second result is what the chunk returned.
local function run(before_report, chunk, ...)
  local ok, err = xpcall(chunk, traceback, ...)
  if ok then return 0, err end
  local interrupted = type(err) == "table" and err.code == "interrupted" or tostring(err):find("interrupted", 1, true)
  if before_report then before_report(err) end
  report(err)
  return interrupted and 130 or 1
end

-- The module dist when this process has joined a job with it.
local function joined_dist()
  local dist = package.loaded["argand.dist"]
  return type(dist) == "table" and dist.is_initialized() and dist or nil
end

-- This rank fails. The others are told, so that they do not wait; the launcher, too, and whether another rank is to blame.
local function abort_job(err)
  if os.getenv "ARGAND_STATUS_FD" then
    local kind = type(err) == "table" and err.code == "peer" and "peer" or "fail"
    pcall(function() require("argand.core").process.status(tostring(err), kind) end)
  end
  local dist = joined_dist()
  if dist then pcall(dist.abort, tostring(err)) end
end

-- Waits as long as for a collective: what others do last, saving or a test on one rank, may take its time.
local function close_job(dist)
  local ok, err = dist.close(tonumber(os.getenv "ARGAND_TIMEOUT" or "") or CLOSE_S)
  if not ok and err then error(err, 0) end
end

-- Runs a chunk of the user's, which may have joined a job and then leaves it.
local function run_user(chunk, ...)
  if os.getenv "ARGAND_STATUS_FD" then io.stdout:setvbuf "line" end -- a launcher shows lines when they are written
  local code = run(abort_job, chunk, ...)
  local dist = code == 0 and joined_dist()
  return dist and (run(abort_job, close_job, dist)) or code
end

-- Runs a command of ours; what it refuses is an argument, so no line of Lua is to blame. The exit code is what it returns.
local function run_command(name, args)
  local code, result = run(nil, function()
    local ok, err = xpcall(require("argand." .. name).main, traceback, args)
    if ok then return err end
    if type(err) == "table" and err.code ~= "interrupted" then err.where, err.traceback = nil, nil end
    error(err, 0)
  end)
  return type(result) == "number" and result or code
end

local function run_script(path, args)
  local chunk, err = loadfile(path)
  if not chunk then return report(err) end
  return run_user(chunk, unpack(args))
end

local function shift(args, first)
  local rest = {[0] = args[first]}
  for i = first + 1, #args do rest[#rest + 1] = args[i] end
  return rest
end

--- Does what the command line says; the exit code is 0, 1 after an error, 2 for an unknown option, 130 after Ctrl-C.
---@param args string[]
---@return integer
function M.main(args)
  local first = args[1]
  if first == nil then
    local core = require "argand.core"
    if core.isatty(0) then return require("argand.prompt").run() end
    local chunk, err = load(function() return io.read(65536) end, "=stdin")
    if not chunk then return report(err) end
    return run_user(chunk)
  elseif first == "--help" or first == "-h" then
    print(usage)
    return 0
  elseif first == "--version" or first == "-v" then
    print("argand " .. require("argand")._VERSION)
    return 0
  elseif first == "-e" then
    if not args[2] then return report("-e needs a line of Lua") end
    local env_names = "local ag = require 'argand'; "
    local chunk, err = loadstring(env_names .. args[2], "=(command line)")
    if not chunk then return report(err) end
    return run_user(chunk, unpack(shift(args, 2)))
  elseif commands[first] then
    return run_command(first, shift(args, 1))
  elseif first:sub(1, 1) == "-" then
    io.stderr:write("argand: unknown option ", first, "\n", usage, "\n")
    return 2
  end
  local script_args = shift(args, 1)
  _G.arg = script_args
  return run_script(first, script_args)
end

return M
