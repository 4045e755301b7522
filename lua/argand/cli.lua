--- cli: what the command `argand` does with its arguments.
local M = {}

local usage = [[
usage: argand script.lua [arguments]   run a script
       argand -e "code"                run a line of Lua
       argand                          a prompt; a script on standard input when that is no terminal
       argand info [--caps]            version, build, processor, threads, BLAS, devices; --caps: the capability matrix
       argand help op                  what an op does, its arguments, where it runs
       argand bench [names]            speed of this machine, beside PyTorch where it is installed
       argand --version, argand --help]]

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

-- Runs a loaded chunk; the exit code is 0, 1 after an error, 130 after Ctrl-C.
local function run(chunk, ...)
  local ok, err = xpcall(chunk, traceback, ...)
  if ok then return 0 end
  local interrupted = type(err) == "table" and err.code == "interrupted" or tostring(err):find("interrupted", 1, true)
  report(err)
  return interrupted and 130 or 1
end

local function run_script(path, args)
  local chunk, err = loadfile(path)
  if not chunk then return report(err) end
  return run(chunk, unpack(args))
end

local function shift(args, first)
  local rest = {[0] = args[first]}
  for i = first + 1, #args do rest[#rest + 1] = args[i] end
  return rest
end

function M.main(args)
  local first = args[1]
  if first == nil then
    local core = require "argand.core"
    if core.isatty(0) then return require("argand.prompt").run() end
    local chunk, err = load(function() return io.read(65536) end, "=stdin")
    if not chunk then return report(err) end
    return run(chunk)
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
    return run(chunk, unpack(shift(args, 2)))
  elseif first == "info" then
    return run(require("argand.info").main, shift(args, 1))
  elseif first == "help" then
    return run(require("argand.help").main, shift(args, 1))
  elseif first == "bench" then
    return run(require("argand.bench").main, shift(args, 1))
  elseif first:sub(1, 1) == "-" then
    io.stderr:write("argand: unknown option ", first, "\n", usage, "\n")
    return 2
  end
  local script_args = shift(args, 1)
  _G.arg = script_args
  return run_script(first, script_args)
end

return M
