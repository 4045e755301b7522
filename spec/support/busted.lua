--- busted: runs spec files inside the command.
-- `argand spec/support/busted.lua [-joff] [busted's options] spec/some_spec.lua ...`
-- Globals are strict, and after each file the engine's live bytes must be what they were before it.
assert(type(jit) == "table", "the specs run in LuaJIT")

local spec_folder = arg[0]:match "^(.*)/support/busted%.lua$" or "."
package.path = spec_folder .. "/?.lua;" .. package.path

-- -joff is ours; the rest is left to busted, which reads the global `arg`.
local args = {[0] = arg[0]}
for i = 1, #arg do
  if arg[i] == "-joff" then
    jit.off()
    jit.flush()
  else
    if arg[i]:find "%.lua$" then assert(io.open(arg[i])):close() end
    args[#args + 1] = arg[i]
  end
end
-- Files share the loaded modules: a second copy of argand.nn would have classes of its own.
table.insert(args, 1, "--no-auto-insulate")
rawset(_G, "arg", args)

require "argand"
local report = require "support.report"
-- A Lua function of ours has to be the runner's caller: called from C it would end the process itself.
local ok, err = pcall(function()
  require "busted.runner" {standalone = false, output = "support.report"}
  return true
end)
-- busted ends a run that failed with error(nil).
if not ok and err ~= nil then
  io.stderr:write("spec/support/busted.lua: ", tostring(err), "\n")
  report.count_failure()
end
if not report.finish() then os.exit(1, true) end
