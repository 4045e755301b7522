--- cli: what the command `argand` does with its arguments.
local M = {}

local usage = [[
usage: argand script.lua [arguments]   run a script
       argand -e "code" [arguments]    run a line of Lua; `ag` is the module
       argand                          a prompt; a script on standard input when that is no terminal
       argand info [--caps]            version, build, processor, threads, BLAS, devices; --caps: the capability matrix
       argand help [ops]               what ops do, their arguments, where they run; without names the list of all
       argand help --luacats           declarations of all ops and functions, for editors
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

-- Runs a command of ours; what it refuses is an argument, so no line of Lua is to blame.
local function run_command(name, args)
  return run(function()
    local ok, err = xpcall(require("argand." .. name).main, traceback, args)
    if ok then return end
    if type(err) == "table" and err.code ~= "interrupted" then err.where, err.traceback = nil, nil end
    error(err, 0)
  end)
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
  elseif first == "info" or first == "help" or first == "bench" then
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
