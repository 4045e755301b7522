--- preload: small libraries of spec/support that stand before the system's own, compiled when a spec wants them.
local M = {}

local sources = debug.getinfo(1, "S").source:match "^@(.*)preload%.lua$"

--- Compiles spec/support/<name>.c into a folder. Returns the variables with which a process has it.
---@param name string
---@param folder string
---@return table<string, string>
function M.variables(name, folder)
  local library = ("%s/%s.so"):format(folder, name)
  local pipe = io.popen(("cc -shared -fPIC -o '%s' '%s%s.c' 2>&1; echo code $?"):format(library, sources, name))
  local text = pipe:read "*a"
  pipe:close()
  assert(text == "code 0\n", name .. ".c does not compile: " .. text)
  -- AddressSanitizer would not have a library before its own.
  return {LD_PRELOAD = library, ASAN_OPTIONS = "verify_asan_link_order=0:" .. (os.getenv "ASAN_OPTIONS" or "")}
end

return M
